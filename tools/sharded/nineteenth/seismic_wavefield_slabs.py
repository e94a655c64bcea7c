# mypy: ignore-errors
"""Fault: donated. The wavefield comes in as columns over a 2D mesh and is donated, but is returned
as slabs for the sake of the snapshot writer: no buffer fits, old and new wavefield are both held.

Acoustic forward modelling on a staggered grid (pressure and three velocities, one attenuation variable),
many time steps per call; the host calls it in a loop and writes a snapshot now and then.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Wavefield:
    p: jax.Array
    vz: jax.Array
    vy: jax.Array
    vx: jax.Array
    memory: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Medium:
    bulk: jax.Array
    buoyancy: jax.Array
    relaxation: jax.Array


@dataclasses.dataclass(frozen=True)
class Survey:
    nz: int = 256
    ny: int = 384
    nx: int = 384
    dt: float = 1e-3
    dx: float = 10.0
    steps: int = 200
    frequency: float = 12.0
    source: tuple = (8, 192, 192)
    receiver_depth: int = 4

    @property
    def shape(self):
        return self.nz, self.ny, self.nx


COLUMNS = P("z", "y", None)
SLABS = P(("z", "y"), None, None)


def forward(f, axis, dx):
    return (jnp.roll(f, -1, axis) - f) / dx


def backward(f, axis, dx):
    return (f - jnp.roll(f, 1, axis)) / dx


def ricker(survey, t):
    a = (jnp.pi * survey.frequency * (t - 1.2 / survey.frequency)) ** 2
    return (1 - 2 * a) * jnp.exp(-a)


def inject(survey, p, amount):
    """Adds the source by comparing indices: a scatter into a split array would need communication."""
    here = functools.reduce(
        jnp.logical_and,
        (jax.lax.broadcasted_iota(jnp.int32, p.shape, axis) == at for axis, at in enumerate(survey.source)),
    )
    return p + jnp.where(here, amount, 0.0)


def time_step(survey, medium, w, t):
    kick = survey.dt * medium.buoyancy
    vz = w.vz - kick * forward(w.p, 0, survey.dx)
    vy = w.vy - kick * forward(w.p, 1, survey.dx)
    vx = w.vx - kick * forward(w.p, 2, survey.dx)
    div = backward(vz, 0, survey.dx) + backward(vy, 1, survey.dx) + backward(vx, 2, survey.dx)
    memory = w.memory + survey.dt * medium.relaxation * (div - w.memory)
    p = w.p - survey.dt * medium.bulk * (div - 0.1 * memory)
    return Wavefield(inject(survey, p, survey.dt * ricker(survey, t)), vz, vy, vx, memory)


def make_faulty(devices):
    survey = Survey()
    mesh = Mesh(np.array(devices).reshape(4, 2), ("z", "y"))
    columns, slabs = NamedSharding(mesh, COLUMNS), NamedSharding(mesh, SLABS)
    whole = NamedSharding(mesh, P())

    def advance(wavefield, medium, start):
        def one(i, carry):
            wavefield, trace = carry
            wavefield = time_step(survey, medium, wavefield, start + i * survey.dt)
            wavefield = jax.lax.with_sharding_constraint(wavefield, columns)
            heard = wavefield.p[survey.receiver_depth, survey.ny // 2]
            return wavefield, trace.at[i].set(heard)

        trace = jnp.zeros((survey.steps, survey.nx))
        return jax.lax.fori_loop(0, survey.steps, one, (wavefield, trace))

    field = jax.ShapeDtypeStruct(survey.shape, jnp.float32, sharding=columns)
    jitted = jax.jit(
        advance,
        donate_argnums=0,
        out_shardings=(slabs, whole),  # FAULT
    )
    start = jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)
    return jitted, (Wavefield(*[field] * 5), Medium(field, field, field), start)
