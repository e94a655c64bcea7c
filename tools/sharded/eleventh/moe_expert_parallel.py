# mypy: ignore-errors
"""Clean. A mixture-of-experts layer stack with expert parallelism: tokens are divided over both axes,
expert weights over experts and (FSDP) data, and tokens are exchanged by all-to-all."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CFG = dict(width=512, ff=1024, experts=16, layers=4, groups=32, group_size=512, capacity=64)

# (shape, spec) of every weight, without the leading layer dimension
MANIFEST = {
    "router": (("width", "experts"), P(None, None, None)),
    "w_in": (("experts", "width", "ff"), P(None, "expert", "data", None)),
    "w_gate": (("experts", "width", "ff"), P(None, "expert", "data", None)),
    "w_out": (("experts", "ff", "width"), P(None, "expert", "data", None)),
    "scale": (("width",), P(None, None)),
}
TOKENS = P(("data", "expert"), None, None)


def weights(mesh, dtype):
    out = {}
    for name, (dims, spec) in MANIFEST.items():
        shape = (CFG["layers"], *(CFG[d] for d in dims))
        out[name] = jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    return out


def route(x, router):
    """Top-1 routing with a capacity per group: slot of each token and its gate."""
    probs = jax.nn.softmax((x @ router).astype(jnp.float32), axis=-1)
    gate, expert = probs.max(-1), probs.argmax(-1)
    onehot = jax.nn.one_hot(expert, CFG["experts"], dtype=jnp.float32)
    place = (jnp.cumsum(onehot, axis=1) * onehot).sum(-1).astype(jnp.int32) - 1
    slots = jax.nn.one_hot(place, CFG["capacity"], dtype=x.dtype)  # zero row if over capacity
    balance = CFG["experts"] * (onehot.mean((0, 1)) * probs.mean((0, 1))).sum()
    return onehot.astype(x.dtype), slots, gate.astype(x.dtype), balance


def experts_ffn(mesh, w, x):
    onehot, slots, gate, balance = route(x, w["router"])
    at = lax.with_sharding_constraint
    inbox = jnp.einsum("gse,gsc,gsd->gecd", onehot, slots, x)
    inbox = at(inbox, NamedSharding(mesh, P(("data", "expert"), None, None, None)))
    inbox = at(inbox, NamedSharding(mesh, P("data", "expert", None, None)))  # all-to-all
    h = jnp.einsum("gecd,edf->gecf", inbox, w["w_in"])
    h = h * jax.nn.silu(jnp.einsum("gecd,edf->gecf", inbox, w["w_gate"]))
    outbox = jnp.einsum("gecf,efd->gecd", h, w["w_out"])
    outbox = at(outbox, NamedSharding(mesh, P("data", "expert", None, None)))
    outbox = at(outbox, NamedSharding(mesh, P(("data", "expert"), None, None, None)))  # and back
    y = jnp.einsum("gse,gsc,gecd->gsd", onehot, slots, outbox)
    return y * gate[..., None], balance


def stack(mesh, params, x):
    @jax.checkpoint
    def layer(carry, w):
        x, aux = carry
        normed = x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * w["scale"]
        y, balance = experts_ffn(mesh, w, normed)
        x = lax.with_sharding_constraint(x + y, NamedSharding(mesh, TOKENS))
        return (x, aux + balance), None

    (x, aux), _ = lax.scan(layer, (x, jnp.float32(0)), params)
    return x, aux


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "expert"))

    def objective(params, x, target):
        low = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        y, aux = stack(mesh, low, x)
        return jnp.square((y - target).astype(jnp.float32)).mean() + 0.01 * aux

    def sgd(params, velocity, x, target):
        loss, grads = jax.value_and_grad(objective)(params, x, target)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        return jax.tree.map(lambda p, v: p - 1e-2 * v, params, velocity), velocity, loss

    params = weights(mesh, jnp.float32)
    layout = {k: s.sharding for k, s in params.items()}
    x = jax.ShapeDtypeStruct(
        (CFG["groups"], CFG["group_size"], CFG["width"]), jnp.bfloat16, sharding=NamedSharding(mesh, TOKENS)
    )
    fn = jax.jit(sgd, donate_argnums=(0, 1), out_shardings=(layout, layout, NamedSharding(mesh, P())))
    return fn, (params, params, x, x)
