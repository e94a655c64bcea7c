# mypy: ignore-errors
"""Fault: padding. The ensemble has nine members (a control and eight perturbed ones) and is split over eight devices by
member: every device pads to two members, sixteen in all; splitting the grid instead is even."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Setup:
    members: int = 9
    grid: tuple = (2048, 1024)
    windows: int = 4


def shallow_tendency(h, u, v):
    ddx = lambda f: 0.5 * (jnp.roll(f, -1, -2) - jnp.roll(f, 1, -2))
    ddy = lambda f: 0.5 * (jnp.roll(f, -1, -1) - jnp.roll(f, 1, -1))
    dh = -(ddx(h * u) + ddy(h * v))
    du = -(u * ddx(u) + v * ddy(u)) - 9.81 * ddx(h) + 1e-4 * v
    dv = -(u * ddx(v) + v * ddy(v)) - 9.81 * ddy(h) - 1e-4 * u
    return dh, du, dv


def integrate(fields, dt):
    k = shallow_tendency(*fields)
    mid = tuple(f + 0.5 * dt * d for f, d in zip(fields, k))
    return tuple(f + dt * d for f, d in zip(fields, shallow_tendency(*mid)))


def perturb(key, control, members):
    keys = jax.random.split(key, len(control))
    out = []
    for k, f in zip(keys, control):
        noise = jax.random.normal(k, (members, *f.shape)) * 0.01
        out.append(f[None] + noise.at[0].set(0.0))
    return tuple(out)


def breed(fields, amplitude):
    """Scales every member back to a fixed distance from the control run (member zero)."""
    distance = sum(jnp.mean(jnp.square(f - f[:1]), axis=(1, 2), keepdims=True) for f in fields)
    factor = amplitude / jnp.sqrt(distance + 1e-12)
    return tuple(f[:1] + factor * (f - f[:1]) for f in fields)


def cycle(key, control, amplitudes, setup, ens):
    pin = lambda fields: tuple(jax.lax.with_sharding_constraint(f, ens) for f in fields)
    fields = pin(perturb(key, control, setup.members))

    def window(fields, amplitude):
        fields = jax.lax.fori_loop(0, 10, lambda _, f: pin(integrate(f, 0.01)), fields)
        fields = pin(breed(fields, amplitude))
        spread = jnp.sqrt(jnp.mean(jnp.var(fields[0], axis=0)))
        return fields, spread

    fields, spread = jax.lax.scan(window, fields, amplitudes)
    return tuple(f.mean(0) for f in fields), spread


MEMBER_SPLIT = P("ens", None, None)  # FAULT
GRID_SPLIT = P(None, "ens", None)


def build(devices, ensemble_spec):
    setup = Setup()
    mesh = Mesh(np.array(devices), ("ens",))
    grid = NamedSharding(mesh, P("ens", None))
    rep = NamedSharding(mesh, P())
    ens = NamedSharding(mesh, ensemble_spec)
    fn = jax.jit(
        lambda key, control, amplitudes: cycle(key, control, amplitudes, setup, ens),
        out_shardings=((grid, grid, grid), rep),
    )
    control = tuple(jax.ShapeDtypeStruct(setup.grid, jnp.float32, sharding=grid) for _ in range(3))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep)
    amplitudes = jax.ShapeDtypeStruct((setup.windows,), jnp.float32, sharding=rep)
    return fn, (key, control, amplitudes)


def make_faulty(devices):
    return build(devices, MEMBER_SPLIT)


def make_fixed(devices):
    return build(devices, GRID_SPLIT)
