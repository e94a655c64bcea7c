# mypy: ignore-errors
"""Fault: stack. The adjoint of a wave solver: the fields start from zeros inside, nothing says how to split them, and the wavefields kept for the backward pass are whole on all eight devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
GRID, STEPS = 512, 100


def laplace(u):
    u = jnp.pad(u, 1)
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def misfit(speed, wavelet, recorded, split=lambda u: u):
    def step(state, amplitude):
        before, now = state
        after = split(2 * now - before + 0.1 * jnp.sin(now) * speed + speed * laplace(now))  # FAULT
        after = after.at[8, GRID // 2].add(amplitude)
        return (now, after), after[4, ::16]

    zero = jnp.zeros((GRID, GRID))
    _, traces = jax.lax.scan(step, (split(zero), split(zero)), wavelet)  # FAULT
    return jnp.sum((traces - recorded) ** 2)


def args(mesh):
    whole = NamedSharding(mesh, P())
    return (jax.ShapeDtypeStruct((GRID,), jnp.float32, sharding=whole), jax.ShapeDtypeStruct((STEPS,), jnp.float32, sharding=whole),
            jax.ShapeDtypeStruct((STEPS, GRID // 16), jnp.float32, sharding=whole))


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("x",))

    def update(profile, wavelet, recorded):
        g = jax.grad(lambda p: misfit(p[:, None] * jnp.ones(GRID), wavelet, recorded))(profile)
        return profile - 1e-3 * g

    return jax.jit(update), args(mesh)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("x",))
    columns = lambda u: jax.lax.with_sharding_constraint(u, NamedSharding(mesh, P(None, "x")))

    def update(profile, wavelet, recorded):
        g = jax.grad(lambda p: misfit(p[:, None] * jnp.ones(GRID), wavelet, recorded, columns))(profile)
        return profile - 1e-3 * g

    return jax.jit(update), args(mesh)
