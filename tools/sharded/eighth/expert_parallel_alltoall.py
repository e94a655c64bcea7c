# mypy: ignore-errors
"""Clean. Expert parallelism by hand: tokens travel to their experts and back with all-to-all inside a shard_map, one
expert per chip, with the router alone whole."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

EXPERTS, TOKENS, DIM, FF = 16, 16 * 8192, 1024, 4096
LAYERS = 4
SLACK = 1.25

AXIS = "expert"
SPECS = {"router": P(), "up": P(None, AXIS, None, None), "down": P(None, AXIS, None, None)}
SHAPES = {
    "router": (LAYERS, DIM, EXPERTS),
    "up": (LAYERS, EXPERTS, DIM, FF),
    "down": (LAYERS, EXPERTS, FF, DIM),
}


def assign(x, router, capacity):
    """Top-1 expert of every local token, its place in the expert's queue, and the gate."""
    probs = jax.nn.softmax((x @ router).astype(jnp.float32), axis=-1)
    expert = jnp.argmax(probs, axis=-1)
    onehot = jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(onehot, axis=0) - 1) * onehot, axis=-1)
    gate = jnp.max(probs, axis=-1) * (place < capacity)
    return expert, place, gate.astype(x.dtype)


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def local_forward(weights, x):
    capacity = int(SLACK * x.shape[0] / EXPERTS)

    def layer(x, w):
        y = norm(x)
        expert, place, gate = assign(y, w["router"], capacity)
        outbox = jnp.zeros((EXPERTS, capacity, DIM), x.dtype).at[expert, place].set(y, mode="drop")
        inbox = jax.lax.all_to_all(outbox, AXIS, split_axis=0, concat_axis=0, tiled=True)
        h = jax.nn.gelu(inbox.reshape(-1, DIM) @ w["up"][0]) @ w["down"][0]
        back = jax.lax.all_to_all(h.reshape(inbox.shape), AXIS, split_axis=0, concat_axis=0, tiled=True)
        picked = back[expert, jnp.minimum(place, capacity - 1)]
        load = jax.lax.pmean(jnp.mean(jax.nn.one_hot(expert, EXPERTS), axis=0), AXIS)
        return x + picked * gate[:, None], load

    return jax.lax.scan(layer, x, weights)


def make_clean(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    tokens = P(AXIS, None)
    mapped = jax.shard_map(
        local_forward, mesh=mesh, in_specs=(SPECS, tokens), out_specs=(tokens, P()), check_vma=False
    )

    def struct(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    weights = {k: struct(SHAPES[k], SPECS[k]) for k in SHAPES}
    return jax.jit(mapped, donate_argnums=1), (weights, struct((TOKENS, DIM), tokens))
