# mypy: ignore-errors
"""Fault: stack. The snapshots of the wavefield that the scan stacks are laid out without "y", while
the wavefield itself is split along "x" and "y": the history takes twice the memory on each device.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYOUT = {
    "field": P("x", "y", None),
    "snapshot": P("x", None, None),  # FAULT
    "surface": P(None, "x", "y"),
}

# Second derivative, eighth order.
STENCIL = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)


@dataclass(frozen=True)
class Survey:
    nx: int = 256
    ny: int = 256
    nz: int = 128
    spacing: float = 12.5
    dt: float = 1e-3
    steps: int = 480
    every: int = 20
    depth: int = 4
    peak: float = 15.0
    absorb: int = 24


class Modelling:
    """Acoustic modelling of one shot: the traces at the surface, and snapshots for the imaging."""

    def __init__(self, survey: Survey, mesh: Mesh):
        self.survey, self.mesh = survey, mesh

    def sharding(self, name, stacked=False):
        spec = LAYOUT[name]
        return NamedSharding(self.mesh, P(None, *spec) if stacked else spec)

    def lay(self, value, name):
        return lax.with_sharding_constraint(value, self.sharding(name))

    def laplacian(self, p):
        out = 3 * STENCIL[0] * p
        for axis in range(3):
            for k, c in enumerate(STENCIL[1:], 1):
                out += c * (jnp.roll(p, k, axis) + jnp.roll(p, -k, axis))
        return out / self.survey.spacing**2

    def taper(self):
        s = self.survey

        def profile(n):
            edge = jnp.minimum(jnp.arange(n), jnp.arange(n)[::-1])
            return jnp.exp(-((0.015 * jnp.maximum(s.absorb - edge, 0)) ** 2))

        a, b, c = profile(s.nx), profile(s.ny), profile(s.nz)
        return a[:, None, None], b[:, None], c

    def advance(self, state, model, inject):
        previous, current = state
        a, b, c = self.taper()
        following = 2 * current - previous + model * self.laplacian(current)
        following = inject(following) * a * b * c
        return current * a * b * c, self.lay(following, "field")

    def wavelet(self, step):
        t = (step * self.survey.dt - 1.2 / self.survey.peak) * np.pi * self.survey.peak
        return (1 - 2 * t**2) * jnp.exp(-(t**2))

    def simulate(self, model, shot):
        s = self.survey
        i, j = shot

        def single(state, step):
            value = self.wavelet(step)
            here = (jnp.arange(s.nx)[:, None] == i) & (jnp.arange(s.ny) == j)
            add = lambda p: p.at[:, :, s.depth].add(jnp.where(here, value, 0.0))
            state = self.advance(state, model, add)
            return state, state[1][:, :, s.depth]

        def segment(carry, n):
            state, light = carry
            state, traces = lax.scan(single, state, n * s.every + jnp.arange(s.every))
            return (state, light + state[1] ** 2), (self.lay(state[1], "snapshot"), traces)  # FAULT

        rest = self.lay(jnp.zeros((s.nx, s.ny, s.nz)), "field")
        segments = jnp.arange(s.steps // s.every)
        (_, light), (history, traces) = lax.scan(segment, ((rest, rest), rest), segments)
        return history, light, traces.reshape(s.steps, s.nx, s.ny)

    def __call__(self, velocity, observed, shot):
        history, light, traces = self.simulate((velocity * self.survey.dt) ** 2, shot)
        residual = self.lay(traces - observed, "surface")
        return history, residual, light, 0.5 * jnp.sum(residual**2)


def make_faulty(devices):
    survey = Survey()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
    modelling = Modelling(survey, mesh)
    whole = NamedSharding(mesh, P())
    cube, plane = (survey.nx, survey.ny, survey.nz), (survey.steps, survey.nx, survey.ny)
    field = jax.ShapeDtypeStruct(cube, jnp.float32, sharding=modelling.sharding("field"))
    observed = jax.ShapeDtypeStruct(plane, jnp.float32, sharding=modelling.sharding("surface"))
    index = jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)
    history = modelling.sharding("snapshot", stacked=True)
    outs = (history, observed.sharding, field.sharding, whole)
    fn = jax.jit(modelling.__call__, donate_argnums=(1,), out_shardings=outs)
    return fn, (field, observed, (index, index))
