# mypy: ignore-errors
"""Fault: gathered. Inside shard_map the weights of each block are all-gathered in the loop body, which is differentiated
without rematerialisation: the gathered weights become residuals of the scan, one full copy per block."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

# Surrogate of a CFD code: maps 512 sensor readings to the pressure on 1024 surface points.
SENSORS, HIDDEN, POINTS, BLOCKS, ROWS = 512, 1536, 1024, 12, 2048
AXIS = "shard"


def fetch(w):
    """Full matrix from the row shards; the transpose of this is a reduce-scatter."""
    return lax.all_gather(w, AXIS, axis=0, tiled=True)


def residual_block(x, weights):
    w1, b1, w2 = weights
    h = jnp.tanh(x @ fetch(w1) + b1)
    return x + h @ fetch(w2), None


def plain(body):
    return body


def rematerialised(body):
    return jax.checkpoint(body, policy=jax.checkpoint_policies.nothing_saveable)


def local_loss(params, sensors, pressure, wrap):
    x = jnp.tanh(sensors @ fetch(params["inp"]))
    x, _ = lax.scan(wrap(residual_block), x, (params["w1"], params["b1"], params["w2"]))
    pred = x @ fetch(params["out"])
    return jnp.mean((pred - pressure) ** 2)


def local_step(params, velocity, sensors, pressure, *, wrap):
    loss, g = jax.value_and_grad(local_loss)(params, sensors, pressure, wrap)
    g["b1"] = lax.pmean(g["b1"], AXIS)
    velocity = jax.tree.map(lambda v, gi: 0.9 * v + gi / 8, velocity, g)
    params = jax.tree.map(lambda p, v: p - 1e-3 * v, params, velocity)
    return params, velocity, lax.pmean(loss, AXIS)


LAYOUT = {
    "inp": ((SENSORS, HIDDEN), P(AXIS, None)),
    "w1": ((BLOCKS, HIDDEN, HIDDEN), P(None, AXIS, None)),
    "b1": ((BLOCKS, HIDDEN), P(None, None)),
    "w2": ((BLOCKS, HIDDEN, HIDDEN), P(None, AXIS, None)),
    "out": ((HIDDEN, POINTS), P(AXIS, None)),
}


def trainer(devices, wrap):
    mesh = Mesh(np.array(devices), (AXIS,))
    specs = {k: spec for k, (_, spec) in LAYOUT.items()}
    step = shard_map(
        partial(local_step, wrap=wrap),
        mesh=mesh,
        in_specs=(specs, specs, P(AXIS), P(AXIS)),
        out_specs=(specs, specs, P()),
        check_vma=False,
    )
    params = {
        k: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for k, (shape, spec) in LAYOUT.items()
    }
    rows = NamedSharding(mesh, P(AXIS))
    sensors = jax.ShapeDtypeStruct((ROWS, SENSORS), jnp.float32, sharding=rows)
    pressure = jax.ShapeDtypeStruct((ROWS, POINTS), jnp.float32, sharding=rows)
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, sensors, pressure)


def make_faulty(devices):
    return trainer(devices, wrap=plain)  # FAULT


def make_fixed(devices):
    return trainer(devices, wrap=rematerialised)
