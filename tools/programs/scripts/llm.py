"""One training step of a decoder in plain JAX: layers scanned, f32 parameters and moments."""

import compiling
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.ad_checkpoint import checkpoint_name

config = compiling.options(
    __doc__,
    donate=False,
    remat="",  # full, dots, names or offload
    unroll=False,
    barrier=False,
    dtype="float32",
    chunks=1,
    batch=4,
    seq=512,
    layers=6,
    d=512,
    heads=4,
    vocab=16384,
    mesh=1,
    axis="data",
)
policies = jax.checkpoint_policies
POLICIES = {
    "full": None,
    "dots": policies.dots_with_no_batch_dims_saveable,
    "names": policies.save_only_these_names("attended"),
    "offload": policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["block"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}
tx = optax.adam(3e-4)


def norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def attention(x, w):
    b, s, d = x.shape
    qkv = (x @ w["qkv"]).reshape(b, s, 3, config.heads, d // config.heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // config.heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9)
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return checkpoint_name(out.reshape(b, s, d) @ w["out"], "attended")


def block(x, w):
    x = checkpoint_name(x, "block")
    x = x + attention(norm(x, w["norm1"]), w)
    if config.barrier:
        x = lax.optimization_barrier(x)
    hidden = jax.nn.gelu(norm(x, w["norm2"]) @ w["up"])
    if config.barrier:
        hidden = lax.optimization_barrier(hidden)
    return x + hidden @ w["down"]


def cross_entropy(hidden, embed, labels):
    logits = (hidden @ embed.T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).sum()


def chunked_cross_entropy(hidden, embed, labels):
    """The same sum, with logits of one chunk of the sequence at a time."""

    def chunk(total, part):
        return total + jax.checkpoint(cross_entropy)(part[0], embed, part[1]), None

    def split(x):
        parts = x.reshape(x.shape[0], config.chunks, -1, *x.shape[2:])
        return jnp.moveaxis(parts, 1, 0)

    return lax.scan(chunk, jnp.float32(0), (split(hidden), split(labels)))[0]


def loss_fn(params, tokens):
    weights = jax.tree.map(lambda w: w.astype(config.dtype), params)
    x = weights["embed"][tokens[:, :-1]]
    layer = block
    if config.remat:
        layer = jax.checkpoint(block, policy=POLICIES[config.remat])
    if config.unroll:
        for i in range(config.layers):
            x = layer(x, compiling.taken(weights["layers"], i))
    else:
        x, _ = lax.scan(lambda h, w: (layer(h, w), None), x, weights["layers"])
    total = chunked_cross_entropy if config.chunks > 1 else cross_entropy
    return total(x, weights["embed"], tokens[:, 1:]) / tokens.size


def train_step(params, opt_state, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


L, D = config.layers, config.d
SHAPES = {
    "embed": (config.vocab, D),
    "layers": {
        "qkv": (L, D, 3 * D),
        "out": (L, D, D),
        "up": (L, D, 4 * D),
        "down": (L, 4 * D, D),
        "norm1": (L, D),
        "norm2": (L, D),
    },
}
# Which dimension each parameter is split along, on a mesh whose axis is the model's.
SPLIT = {"embed": 0, "qkv": 2, "out": 1, "up": 2, "down": 1}
place = compiling.Mesh(config.platform, config.mesh)


def parameter(path, shape):
    name = path[-1].key
    whole = config.axis == "data" or name not in SPLIT
    return place.array(shape, jnp.float32, None if whole else SPLIT[name])


params = jax.tree_util.tree_map_with_path(
    parameter, SHAPES, is_leaf=lambda node: isinstance(node, tuple)
)
count = place.array((), jnp.int32)
opt_state = (optax.ScaleByAdamState(count, params, params), optax.EmptyState())
tokens = place.array(
    (config.batch, config.seq + 1), jnp.int32, 0 if config.axis == "data" else None
)
step = jax.jit(train_step, donate_argnames=("params", "opt_state") if config.donate else ())
compiling.compile_and_report(step.lower(params, opt_state, tokens), "train_step")
