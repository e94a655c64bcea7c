# mypy: ignore-errors
"""Fault: reshard. Between dispatch (split by group) and the experts (split by expert) the tokens pass through a
constraint that makes them whole on every chip: an all-gather of everything where an all-to-all would do."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

GROUPS, TOKENS, DIM, FF, EXPERTS = 32, 2048, 1024, 2048, 8
CAPACITY = 2 * TOKENS // EXPERTS


def router(x, w):
    """Top-1 routing with a fixed capacity: positions and gates per token."""
    probs = jax.nn.softmax((x @ w).astype(jnp.float32), axis=-1)
    expert = jnp.argmax(probs, axis=-1)
    gate = jnp.max(probs, axis=-1)
    onehot = jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32)
    position = jnp.sum((jnp.cumsum(onehot, axis=1) - 1) * onehot, axis=-1)
    kept = position < CAPACITY
    return expert, jnp.where(kept, position, CAPACITY), jnp.where(kept, gate, 0.0)


def dispatch(x, expert, position):
    def one(x, e, p):
        out = jnp.zeros((EXPERTS, CAPACITY + 1, DIM), x.dtype)
        return out.at[e, p].set(x, mode="drop")[:, :CAPACITY]

    return jax.vmap(one)(x, expert, position)


def combine(y, expert, position, gate):
    def one(y, e, p, g):
        picked = y[e, jnp.minimum(p, CAPACITY - 1)]
        return picked * g[:, None].astype(y.dtype)

    return jax.vmap(one)(y, expert, position, gate)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("ep",))
    by_group = NamedSharding(mesh, P("ep", None, None, None))
    by_expert = NamedSharding(mesh, P(None, "ep", None, None))
    tokens = NamedSharding(mesh, P("ep", None, None))
    everywhere = NamedSharding(mesh, P())

    def exchange(x, source, target):
        x = jax.lax.with_sharding_constraint(x, source)
        x = jax.lax.with_sharding_constraint(x, everywhere)  # FAULT
        return jax.lax.with_sharding_constraint(x, target)

    def moe(params, x):
        expert, position, gate = router(x, params["router"])
        routed = dispatch(x, expert, position)
        routed = exchange(routed, by_group, by_expert)
        h = jax.nn.gelu(jnp.einsum("gecd,edf->gecf", routed, params["up"]))
        y = jnp.einsum("gecf,efd->gecd", h, params["down"])
        y = exchange(y, by_expert, by_group)
        return x + combine(y, expert, position, gate)

    def weight(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    params = {
        "router": weight((DIM, EXPERTS), P()),
        "up": weight((EXPERTS, DIM, FF), P("ep", None, None)),
        "down": weight((EXPERTS, FF, DIM), P("ep", None, None)),
    }
    x = jax.ShapeDtypeStruct((GROUPS, TOKENS, DIM), jnp.bfloat16, sharding=tokens)
    return jax.jit(moe, donate_argnums=1, out_shardings=tokens), (params, x)
