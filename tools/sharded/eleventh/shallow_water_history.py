# mypy: ignore-errors
"""Fault: stack. The snapshots which the time loop stacks are constrained to be whole on every
device, although the fields they are taken from are divided in both directions."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

NLAT, NLON = 1024, 2048
SNAPSHOTS = 24
STEPS_PER_SNAPSHOT = 20
GRAVITY, DEPTH, DX, DT, CORIOLIS = 9.81, 100.0, 5e3, 30.0, 1e-4


class Ocean(NamedTuple):
    u: jax.Array
    v: jax.Array
    eta: jax.Array


class Diagnostics(NamedTuple):
    eta: jax.Array
    vorticity: jax.Array


def ddx(f):
    return (jnp.roll(f, -1, axis=1) - jnp.roll(f, 1, axis=1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, axis=0) - jnp.roll(f, 1, axis=0)) / (2 * DX)


def tendencies(s, wind):
    du = CORIOLIS * s.v - GRAVITY * ddx(s.eta) - s.u * ddx(s.u) - s.v * ddy(s.u) + wind
    dv = -CORIOLIS * s.u - GRAVITY * ddy(s.eta) - s.u * ddx(s.v) - s.v * ddy(s.v)
    deta = -ddx((DEPTH + s.eta) * s.u) - ddy((DEPTH + s.eta) * s.v)
    return Ocean(du, dv, deta)


def axpy(a, x, y):
    return jax.tree.map(lambda xi, yi: yi + a * xi, x, y)


def heun(s, wind):
    k1 = tendencies(s, wind)
    k2 = tendencies(axpy(DT, k1, s), wind)
    return jax.tree.map(lambda y, a, b: y + 0.5 * DT * (a + b), s, k1, k2)


class Model:
    def __init__(self, mesh):
        self.mesh = mesh
        self.field = NamedSharding(mesh, P("lat", "lon"))

    def on_grid(self, s):
        return jax.tree.map(lambda f: lax.with_sharding_constraint(f, self.field), s)

    def observe(self, s):
        """What is kept of a state for the output file."""
        diag = Diagnostics(eta=s.eta, vorticity=ddx(s.v) - ddy(s.u))
        return jax.tree.map(self.keep, diag)

    def keep(self, x):
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*(None,) * x.ndim)))  # FAULT

    def integrate(self, state, wind):
        def leg(s, _):
            s = lax.fori_loop(0, STEPS_PER_SNAPSHOT, lambda _, y: self.on_grid(heun(y, wind)), s)
            return s, self.observe(s)

        state, history = lax.scan(leg, state, None, length=SNAPSHOTS)
        return state, history


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("lat", "lon"))
    model = Model(mesh)
    field = jax.ShapeDtypeStruct((NLAT, NLON), jnp.float32, sharding=model.field)
    run = jax.jit(model.integrate, donate_argnums=0)
    return run, (Ocean(field, field, field), field)
