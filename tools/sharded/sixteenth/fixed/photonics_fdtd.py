# mypy: ignore-errors
"""Clean. A photonics simulation whose medium is split as its fields are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

GRID = (192, 192, 160)
STEPS = 32
COMPONENTS = ("x", "y", "z")
FIELD_SPEC = P("x", "y", None)
MEDIUM_SPEC = FIELD_SPEC


def forward(f, axis):
    return jnp.roll(f, -1, axis) - f


def backward(f, axis):
    return f - jnp.roll(f, 1, axis)


def curl(field, diff):
    fx, fy, fz = (field[c] for c in COMPONENTS)
    return {
        "x": diff(fz, 1) - diff(fy, 2),
        "y": diff(fx, 2) - diff(fz, 0),
        "z": diff(fy, 0) - diff(fx, 1),
    }


def soft_source(ez, step, period, centre):
    """A Ricker pulse added on one line of cells, written so that it stays local."""
    phase = (step - 2.0 * period) / period
    pulse = (1.0 - 2.0 * (np.pi * phase) ** 2) * jnp.exp(-((np.pi * phase) ** 2))
    ix = lax.broadcasted_iota(jnp.int32, ez.shape, 0)
    iy = lax.broadcasted_iota(jnp.int32, ez.shape, 1)
    return jnp.where((ix == centre[0]) & (iy == centre[1]), ez + pulse, ez)


def update(fields, step, medium, *, period, centre):
    """Yee's leapfrog: H by half a step, then E with losses, then the source."""
    rot_e = curl(fields["E"], forward)
    h = {c: fields["H"][c] - medium["permeability"][c] * rot_e[c] for c in COMPONENTS}
    rot_h = curl(h, backward)
    e = {
        c: medium["decay"][c] * fields["E"][c] + medium["permittivity"][c] * rot_h[c]
        for c in COMPONENTS
    }
    e["z"] = soft_source(e["z"], step, period, centre)
    energy = sum(jnp.sum(jnp.square(e[c])) + jnp.sum(jnp.square(h[c])) for c in COMPONENTS)
    return {"E": e, "H": h}, energy


def simulate(fields, medium, start, *, mesh, period, centre):
    placed = NamedSharding(mesh, FIELD_SPEC)

    def body(carry, step):
        carry, energy = update(carry, step, medium, period=period, centre=centre)
        return lax.with_sharding_constraint(carry, placed), energy

    steps = start + jnp.arange(STEPS, dtype=jnp.float32)
    return lax.scan(body, fields, steps)


def volumes(mesh, spec):
    one = jax.ShapeDtypeStruct(GRID, jnp.float32, sharding=NamedSharding(mesh, spec))
    return dict.fromkeys(COMPONENTS, one)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
    fields = {name: volumes(mesh, FIELD_SPEC) for name in ("E", "H")}
    coefficients = ("decay", "permittivity", "permeability")
    medium = {name: volumes(mesh, MEDIUM_SPEC) for name in coefficients}
    start = jax.ShapeDtypeStruct((), jnp.float32)
    run = functools.partial(simulate, mesh=mesh, period=24.0, centre=(GRID[0] // 3, GRID[1] // 2))
    out = (NamedSharding(mesh, FIELD_SPEC), NamedSharding(mesh, P()))
    return jax.jit(run, donate_argnums=0, out_shardings=out), (fields, medium, start)
