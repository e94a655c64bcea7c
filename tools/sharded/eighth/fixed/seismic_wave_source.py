# mypy: ignore-errors
"""Fault: dropped. The constraint that should split the velocity model and wavefields over the devices is called but
its result is thrown away, so that every device builds and steps the whole volume."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Survey:
    nz: int = 192
    ny: int = 192
    nx: int = 192
    steps: int = 64
    dt: float = 1e-3
    dx: float = 10.0
    receivers: int = 512


def ricker(t, freq=12.0):
    a = (jnp.pi * freq * (t - 1.0 / freq)) ** 2
    return (1 - 2 * a) * jnp.exp(-a)


def layered_velocity(cfg, depths, speeds):
    """Piecewise constant speed in z, bent by a smooth dome in x and y."""
    z, y, x = (jax.lax.broadcasted_iota(jnp.float32, (cfg.nz, cfg.ny, cfg.nx), i) for i in range(3))
    dome = 12.0 * jnp.exp(-((y - cfg.ny / 2) ** 2 + (x - cfg.nx / 2) ** 2) / (2 * 40.0**2))
    velocity = jnp.full_like(z, 1.0) * speeds[0]
    for i in range(depths.shape[0]):
        velocity = jnp.where(z + dome > depths[i], speeds[i + 1], velocity)
    return velocity


def laplacian(u):
    out = -6.0 * u
    for axis in range(3):
        out = out + jnp.roll(u, 1, axis) + jnp.roll(u, -1, axis)
    return out


def absorbing(cfg, width=16):
    def ramp(n):
        i = jnp.arange(n)
        d = jnp.minimum(i, n - 1 - i)
        return jnp.exp(-(jnp.maximum(width - d, 0) * 0.015) ** 2)

    return ramp(cfg.nz)[:, None, None] * ramp(cfg.ny)[None, :, None] * ramp(cfg.nx)[None, None, :]


def make_fixed(devices):
    cfg = Survey()
    mesh = Mesh(np.array(devices).reshape(4, 2), ("y", "x"))
    slab = NamedSharding(mesh, P(None, "y", "x"))

    def shoot(depths, speeds, source, receivers):
        velocity = layered_velocity(cfg, depths, speeds)
        velocity = jax.lax.with_sharding_constraint(velocity, slab)
        courant = (velocity * cfg.dt / cfg.dx) ** 2
        damp = absorbing(cfg)
        zero = jnp.zeros_like(velocity)

        def step(carry, i):
            prev, cur = carry
            nxt = 2 * cur - prev + courant * laplacian(cur)
            nxt = nxt.at[source[0], source[1], source[2]].add(ricker(i * cfg.dt))
            cur, nxt = cur * damp, nxt * damp
            trace = nxt[receivers[:, 0], receivers[:, 1], receivers[:, 2]]
            return (cur, nxt), trace

        (prev, cur), traces = jax.lax.scan(step, (zero, zero), jnp.arange(cfg.steps))
        return {"traces": traces, "energy": jnp.sum((cur - prev) ** 2), "snapshot": cur}

    whole = NamedSharding(mesh, P())

    def small(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=whole)

    args = (
        small((7,), jnp.float32),
        small((8,), jnp.float32),
        small((3,), jnp.int32),
        small((cfg.receivers, 3), jnp.int32),
    )
    return jax.jit(shoot), args
