# mypy: ignore-errors
"""Fault: reshard. A slab-decomposed 3D FFT turns its slabs by first putting the whole spectrum on all devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
N = 192


def turn_via_host_order(f, mesh, to):
    f = jax.lax.with_sharding_constraint(f, NamedSharding(mesh, P()))  # FAULT
    return jax.lax.with_sharding_constraint(f, NamedSharding(mesh, to))  # FAULT


def turn(f, mesh, to):
    return jax.lax.with_sharding_constraint(f, NamedSharding(mesh, to))


def along(mesh, spec, op, axes):
    return partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec)(lambda f: op(f, axes=axes))


def green():
    k = jnp.fft.fftfreq(N) * N
    k2 = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
    return jnp.where(k2 > 0, -1.0 / jnp.maximum(k2, 1.0), 0.0)


def build(devices, transpose):
    mesh = Mesh(np.array(devices), ("slab",))
    z_slabs, y_slabs = P("slab"), P(None, "slab")

    def solve(rho):
        f = along(mesh, z_slabs, jnp.fft.fftn, (1, 2))(rho.astype(jnp.complex64))
        f = transpose(f, mesh, y_slabs)  # FAULT
        f = along(mesh, y_slabs, jnp.fft.fftn, (0,))(f)
        f = f * green()
        f = along(mesh, y_slabs, jnp.fft.ifftn, (0,))(f)
        f = transpose(f, mesh, z_slabs)  # FAULT
        return along(mesh, z_slabs, jnp.fft.ifftn, (1, 2))(f).real

    rho = jax.ShapeDtypeStruct((N, N, N), jnp.float32, sharding=NamedSharding(mesh, z_slabs))
    return jax.jit(solve, in_shardings=rho.sharding, out_shardings=rho.sharding), (rho,)


def make_faulty(devices):
    return build(devices, turn_via_host_order)


def make_fixed(devices):
    return build(devices, turn)
