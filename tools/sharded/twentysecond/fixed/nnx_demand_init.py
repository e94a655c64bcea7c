# mypy: ignore-errors
"""Clean. The constrained state is put back into the model, so the freshly initialised parameters leave split.

Initialisation of an electricity-demand forecaster written in flax nnx, jitted so that no chip has to hold the
whole model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

STATIONS, HISTORY, HORIZON = 512, 672, 96
WIDTH, HIDDEN, LAYERS, HEADS = 1024, 4096, 4, 8


class Mixing(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.norm_mlp = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, HIDDEN, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.gelu(self.up(self.norm_mlp(x))))


class Forecaster(nnx.Module):
    def __init__(self, rngs):
        self.read = nnx.Linear(HISTORY, WIDTH, rngs=rngs)
        self.station = nnx.Embed(STATIONS, WIDTH, rngs=rngs)
        self.layers = nnx.List([Mixing(rngs) for _ in range(LAYERS)])
        self.write = nnx.Linear(WIDTH, HORIZON, rngs=rngs)

    def __call__(self, load):
        x = self.read(load) + self.station(jnp.arange(STATIONS))
        for layer in self.layers:
            x = layer(x)
        return self.write(x)


def spec_for(shape, chips):
    """Split the longest dimension that divides; small vectors stay whole."""
    if int(np.prod(shape)) < 65_536:
        return P()
    order = sorted(range(len(shape)), key=lambda i: -shape[i])
    axis = next((i for i in order if shape[i] % chips == 0), None)
    return P() if axis is None else P(*("chips" if i == axis else None for i in range(len(shape))))


def shard_state(state, mesh):
    def one(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec_for(x.shape, mesh.size)))

    return jax.tree.map(one, state)


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), ("chips",))
    whole = NamedSharding(mesh, P())

    def create(key):
        model = Forecaster(nnx.Rngs(params=key))
        state = nnx.state(model, nnx.Param)
        sharded = shard_state(state, mesh)
        nnx.update(model, sharded)
        count = sum(x.size for x in jax.tree.leaves(sharded))
        return nnx.state(model, nnx.Param), jnp.asarray(count, jnp.int32)

    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=whole)
    return jax.jit(create), (key,)
