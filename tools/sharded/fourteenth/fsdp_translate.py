# mypy: ignore-errors
"""Clean. FSDP in shard_map: each layer's weights are gathered within the checkpointed block, forward and backward."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CFG = dict(vocab=16384, d=1024, ff=4096, heads=8, enc=6, dec=6, batch=32, length=384)
BIG = 1 << 16  # smaller ones are not divided


def shapes(c):
    d, ff = c["d"], c["ff"]
    attention = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "norm": (d,)}
    mlp = {"wi": (d, ff), "wo": (ff, d), "norm": (d,)}
    return {
        "embed": (c["vocab"], d),
        "positions": (c["length"], d),
        "encoder": {"self": attention, "mlp": mlp},
        "decoder": {"self": attention, "cross": attention, "mlp": mlp},
    }


def attend(p, x, memory, heads, causal=False):
    h = rms(x) * p["norm"].astype(x.dtype)
    memory = h if memory is None else memory
    split = lambda y: y.reshape(*y.shape[:2], heads, -1)
    a = jax.nn.dot_product_attention(split(h @ p["q"]), split(memory @ p["k"]), split(memory @ p["v"]), is_causal=causal)
    return x + a.reshape(x.shape) @ p["o"]


def mlp(p, x):
    return x + jax.nn.gelu((rms(x) * p["norm"].astype(x.dtype)) @ p["wi"]) @ p["wo"]


def rms(x):
    return x * lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def whole(w, full_rank):
    """The weight in bfloat16, gathered over its first dimension if it is divided."""
    w = w.astype(jnp.bfloat16)
    return lax.all_gather(w, "fsdp", axis=0, tiled=True) if full_rank else w


def forward(c, params, source, target):
    gather = lambda tree: jax.tree.map(lambda w: whole(w, w.ndim == 2), tree)
    embed = whole(params["embed"], True)
    positions = whole(params["positions"], True)

    @jax.checkpoint
    def encode(x, shard):
        p = gather(shard)
        return mlp(p["mlp"], attend(p["self"], x, None, c["heads"])), None

    @jax.checkpoint
    def decode(carry, shard):
        x, memory = carry
        p = gather(shard)
        x = attend(p["self"], x, None, c["heads"], causal=True)
        x = attend(p["cross"], x, memory, c["heads"])
        return (mlp(p["mlp"], x), memory), None

    memory, _ = lax.scan(encode, embed[source] + positions, params["encoder"])
    (x, _), _ = lax.scan(decode, (embed[target[:, :-1]] + positions, rms(memory)), params["decoder"])
    logits = (rms(x) @ embed.T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, target[:, 1:])


def make_clean(devices):
    c = CFG
    mesh = Mesh(np.array(devices), ("fsdp",))

    def describe(path, shape):
        stacked = {"encoder": (c["enc"],), "decoder": (c["dec"],)}.get(path[0].key, ())
        spec = P(*[None] * len(stacked), "fsdp") if np.prod(shape) >= BIG else P()
        return jax.ShapeDtypeStruct(stacked + shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = jax.tree_util.tree_map_with_path(describe, shapes(c), is_leaf=lambda s: isinstance(s, tuple))
    specs = jax.tree.map(lambda p: p.sharding.spec, params)
    tx = optax.adamw(1e-3)
    opt = jax.eval_shape(tx.init, params)
    opt_specs = optax.tree_map_params(tx, lambda _, s: s, opt, specs, transform_non_params=lambda _: P())
    opt = jax.tree.map(lambda o, s: jax.ShapeDtypeStruct(o.shape, o.dtype, sharding=NamedSharding(mesh, s)), opt, opt_specs)

    def step(params, opt, source, target):
        loss, grads = jax.value_and_grad(lambda p: forward(c, p, source, target).mean() / mesh.size)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, lax.psum(loss, "fsdp")

    fn = jax.shard_map(step, mesh=mesh, in_specs=(specs, opt_specs, P("fsdp"), P("fsdp")), out_specs=(specs, opt_specs, P()))
    text = lambda n: jax.ShapeDtypeStruct((c["batch"], n), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    return jax.jit(fn, donate_argnums=(0, 1)), (params, opt, text(c["length"]), text(c["length"] + 1))
