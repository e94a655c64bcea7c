# mypy: ignore-errors
"""Fault: donated. A particle-mesh density, donated and split over eight devices, comes back split over one axis of the 4 x 2 mesh only because of out_shardings; the donation is lost."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
GRID = 256


def diffuse(density, source):
    for axis in (1, 2):
        density = density + 0.1 * (jnp.roll(density, 1, axis) + jnp.roll(density, -1, axis) - 2 * density)
    return density + source[:, None, None], density.sum()


def compiled(devices, result_spec):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("d", "e"))
    named = lambda *s: NamedSharding(mesh, P(*s))
    density = jax.ShapeDtypeStruct((GRID, GRID, GRID), jnp.float32, sharding=named("d", "e"))
    source = jax.ShapeDtypeStruct((GRID,), jnp.float32, sharding=named("d"))
    step = jax.jit(
        diffuse,
        donate_argnums=(0,),
        out_shardings=(named(*result_spec), named()),  # FAULT
    )
    return step, (density, source)


def make_faulty(devices):
    return compiled(devices, ("d",))  # FAULT


def make_fixed(devices):
    return compiled(devices, ("d", "e"))
