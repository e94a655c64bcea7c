# mypy: ignore-errors
"""Fault: donated. The populations are donated split in x and y, and the last statement of the step pins them to slabs in
x: twice the bytes per device, so the donated buffer cannot take them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

NX, NY, NZ = 160, 160, 160
INNER = 10
TAU = 0.56

# D3Q15: rest, six faces, eight corners.
VELOCITIES = np.array(
    [(0, 0, 0)]
    + [(s, 0, 0) for s in (1, -1)]
    + [(0, s, 0) for s in (1, -1)]
    + [(0, 0, s) for s in (1, -1)]
    + [(a, b, c) for a in (1, -1) for b in (1, -1) for c in (1, -1)]
)
WEIGHTS = np.array([2 / 9] + [1 / 9] * 6 + [1 / 72] * 8, np.float32)
OPPOSITE = [int(np.flatnonzero((VELOCITIES == -v).all(1))[0]) for v in VELOCITIES]


def stream(f):
    return jnp.stack([jnp.roll(f[q], tuple(v), axis=(0, 1, 2)) for q, v in enumerate(VELOCITIES)])


def moments(f):
    density = f.sum(axis=0)
    momentum = [sum(float(v[i]) * f[q] for q, v in enumerate(VELOCITIES) if v[i]) for i in range(3)]
    return density, [m / density for m in momentum]


def equilibrium(density, u):
    square = 1.5 * (u[0] ** 2 + u[1] ** 2 + u[2] ** 2)
    out = []
    for w, v in zip(WEIGHTS, VELOCITIES, strict=True):
        along = 3.0 * sum(float(v[i]) * u[i] for i in range(3))
        out.append(w * density * (1.0 + along + 0.5 * along**2 - square))
    return jnp.stack(out)


def collide(f, solid, force):
    density, u = moments(f)
    u = [u[0] + force * TAU, u[1], u[2]]
    relaxed = f - (f - equilibrium(density, u)) / TAU
    bounced = jnp.stack([f[q] for q in OPPOSITE])
    return jnp.where(solid[None], bounced, relaxed)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    pencils = NamedSharding(mesh, P(None, "x", "y", None))
    slabs = NamedSharding(mesh, P(None, "x", None, None))
    mask = NamedSharding(mesh, P("x", "y", None))

    def advance(f, solid, force):
        def one(_, f):
            return jax.lax.with_sharding_constraint(stream(collide(f, solid, force)), pencils)

        f = jax.lax.fori_loop(0, INNER, one, f)
        density, u = moments(f)
        fluid = 1.0 - solid
        report = {
            "mass": jnp.sum(density * fluid),
            "flux": jnp.sum(u[0] * fluid) / jnp.sum(fluid),
            "fastest": jnp.max(jnp.abs(u[0]) * fluid),
        }
        return jax.lax.with_sharding_constraint(f, slabs), report  # FAULT

    populations = jax.ShapeDtypeStruct((len(WEIGHTS), NX, NY, NZ), jnp.float32, sharding=pencils)
    solid = jax.ShapeDtypeStruct((NX, NY, NZ), jnp.bool_, sharding=mask)
    force = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    return jax.jit(advance, donate_argnums=0), (populations, solid, force)
