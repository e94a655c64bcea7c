# mypy: ignore-errors
"""Clean. A surrogate of chemical kinetics under FSDP; the backward pass gathers a weight again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

SPECIES, WIDTH, HIDDEN, BLOCKS, CELLS = 256, 2048, 6144, 6, 16384
RATE, DECAY, BETA1, BETA2 = 1e-4, 1e-2, 0.9, 0.99


class Surrogate(NamedTuple):
    """Advances a cell's chemistry by one time step; all weights are split by their rows."""

    encode: jax.Array
    widen: jax.Array
    narrow: jax.Array
    decode: jax.Array


ROWS = Surrogate(P("z"), P(None, "z"), P(None, "z"), P("z"))


def whole(shard):
    return lax.all_gather(shard, "z", axis=0, tiled=True)


@jax.custom_vjp
def project(x, shard):
    """x @ w for this device's cells, `shard` being its rows of w in float32."""
    return x @ whole(shard.astype(x.dtype))


def project_forward(x, shard):
    weight = whole(shard.astype(x.dtype))
    return x @ weight, (x, shard)


def project_backward(residual, grad):
    x, shard = residual
    weight = whole(shard.astype(x.dtype))
    local = x.T @ grad
    mine = lax.psum_scatter(local, "z", scatter_dimension=0, tiled=True)
    return grad @ weight.T, mine.astype(jnp.float32)


project.defvjp(project_forward, project_backward)


def centre(x):
    x32 = x.astype(jnp.float32)
    x32 -= jnp.mean(x32, axis=-1, keepdims=True)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def forward(net, state):
    def block(x, layer):
        widen, narrow = layer
        return x + project(jax.nn.silu(project(centre(x), widen)), narrow), None

    x = project(state.astype(jnp.bfloat16), net.encode)
    x, _ = lax.scan(block, x, (net.widen, net.narrow))
    return project(centre(x), net.decode).astype(jnp.float32)


def loss_fn(net, batch):
    """Squared error of the change in log mass fractions, cells weighted by their stiffness."""
    error = jnp.mean(jnp.square(forward(net, batch["state"]) - batch["change"]), axis=-1)
    return jnp.sum(batch["weight"] * error) / CELLS


def lion(param, grad, moment):
    move = jnp.sign(BETA1 * moment + (1 - BETA1) * grad)
    return param - RATE * (move + DECAY * param), BETA2 * moment + (1 - BETA2) * grad


def train_step(net, moments, batch):
    loss, grads = jax.value_and_grad(loss_fn)(net, batch)
    moved = [lion(*leaf) for leaf in zip(net, grads, moments, strict=True)]
    net, moments = (Surrogate(*leaves) for leaves in zip(*moved, strict=True))
    return net, moments, lax.psum(loss, "z")


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(-1), ("z",))

    def struct(spec, *shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    net = Surrogate(
        encode=struct(ROWS.encode, SPECIES, WIDTH),
        widen=struct(ROWS.widen, BLOCKS, WIDTH, HIDDEN),
        narrow=struct(ROWS.narrow, BLOCKS, HIDDEN, WIDTH),
        decode=struct(ROWS.decode, WIDTH, SPECIES),
    )
    batch = {
        "state": struct(P("z"), CELLS, SPECIES),
        "change": struct(P("z"), CELLS, SPECIES),
        "weight": struct(P("z"), CELLS),
    }
    step = jax.shard_map(
        train_step, mesh=mesh, in_specs=(ROWS, ROWS, P("z")), out_specs=(ROWS, ROWS, P())
    )
    return jax.jit(step, donate_argnums=(0, 1)), (net, net, batch)
