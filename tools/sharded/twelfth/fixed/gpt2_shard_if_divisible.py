# mypy: ignore-errors
"""Fixed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CONFIG = dict(
    n_vocab=50304,
    n_ctx=256,
    n_embd=768,
    n_head=12,
    n_layer=2,
)
BATCH = 16

SPECS = {
    "wte": P("mp", None),
    "wpe": P(None, None),
    "attn_in": P(None, "mp"),
    "attn_out": P("mp", None),
    "mlp_in": P(None, "mp"),
    "mlp_out": P("mp", None),
}


def fitting(spec, shape, mesh):
    """The spec without the axes that do not divide the array."""
    kept = []
    for size, axis in zip(shape, tuple(spec) + (None,) * (len(shape) - len(spec))):
        fits = axis is not None and size % mesh.shape[axis] == 0
        kept.append(axis if fits else None)
    return P(*kept)


def shard(mesh, x, *spec):
    return jax.lax.with_sharding_constraint(
        x, NamedSharding(mesh, fitting(P(*spec), x.shape, mesh))
    )


def init(key):
    d, c = CONFIG["n_embd"], CONFIG
    shapes = {"wte": (c["n_vocab"], d), "wpe": (c["n_ctx"], d)}
    for i in range(c["n_layer"]):
        shapes[f"h{i}.attn_in"] = (d, 3 * d)
        shapes[f"h{i}.attn_out"] = (d, d)
        shapes[f"h{i}.mlp_in"] = (d, 4 * d)
        shapes[f"h{i}.mlp_out"] = (4 * d, d)
    return {n: 0.02 * jax.random.normal(key, s) for n, s in shapes.items()}


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def attention(mesh, x, w_in, w_out):
    b, t, d = x.shape
    heads = CONFIG["n_head"]
    qkv = (x @ w_in).reshape(b, t, 3, heads, d // heads)
    qkv = shard(mesh, qkv, "dp", None, None, "mp", None)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return out.reshape(b, t, d) @ w_out


def forward(mesh, params, tokens):
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    for i in range(CONFIG["n_layer"]):
        x = shard(mesh, x, "dp", None, None)
        w = {n.split(".")[1]: p for n, p in params.items() if n.startswith(f"h{i}.")}
        x = x + attention(mesh, norm(x), w["attn_in"], w["attn_out"])
        x = x + jax.nn.gelu(norm(x) @ w["mlp_in"]) @ w["mlp_out"]
    logits = norm(x) @ params["wte"].T
    return shard(mesh, logits, "dp", None, "mp")


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "mp"))
    tx = optax.lion(1e-4, weight_decay=0.1)

    def train_step(params, opt_state, tokens, targets):
        def loss_fn(params):
            logits = forward(mesh, params, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def place(path, leaf):
        name = str(getattr(path[-1], "key", path[-1])).split(".")[-1]
        spec = SPECS.get(name, P())
        return NamedSharding(mesh, fitting(spec, leaf.shape, mesh))

    params = jax.eval_shape(init, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    p_sh, o_sh = (jax.tree_util.tree_map_with_path(place, t) for t in (params, opt_state))
    rows = NamedSharding(mesh, P("dp", None))
    tokens = jax.ShapeDtypeStruct((BATCH, CONFIG["n_ctx"]), jnp.int32)
    fn = jax.jit(
        train_step,
        in_shardings=(p_sh, o_sh, rows, rows),
        out_shardings=(p_sh, o_sh, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return fn, (params, opt_state, tokens, tokens)
