# mypy: ignore-errors
"""Clean. An acoustic wave solver split over both axes of the grid, with halo exchange in shard_map and the fields
donated; receivers and the source are small and replicated."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

NX, NY = 4096, 4096
STEPS = 8
DT, DX = 1e-3, 10.0
STENCIL = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
HALO = 4


def exchange(u, axis, name, size):
    """Pads a block with HALO rows of both neighbours; zero at the outer boundary."""
    low = jax.lax.slice_in_dim(u, 0, HALO, axis=axis)
    high = jax.lax.slice_in_dim(u, u.shape[axis] - HALO, u.shape[axis], axis=axis)
    from_left = jax.lax.ppermute(high, name, [(i, i + 1) for i in range(size - 1)])
    from_right = jax.lax.ppermute(low, name, [(i + 1, i) for i in range(size - 1)])
    return jnp.concatenate([from_left, u, from_right], axis=axis)


def second_derivative(padded, axis):
    n = padded.shape[axis] - 2 * HALO

    def window(offset):
        return jax.lax.slice_in_dim(padded, HALO + offset, HALO + offset + n, axis=axis)

    out = STENCIL[0] * window(0)
    for k in range(1, HALO + 1):
        out = out + STENCIL[k] * (window(k) + window(-k))
    return out / DX**2


def damping(nx, ny, width=32):
    """An absorbing frame, computed locally from the position of the block."""
    bx, by = NX // nx, NY // ny
    gx = jax.lax.axis_index("x") * bx + jnp.arange(bx)
    gy = jax.lax.axis_index("y") * by + jnp.arange(by)
    dx = jnp.minimum(jnp.minimum(gx, NX - 1 - gx) / width, 1.0)
    dy = jnp.minimum(jnp.minimum(gy, NY - 1 - gy) / width, 1.0)
    return jnp.exp(-0.05 * ((1 - dx)[:, None] ** 2 + (1 - dy)[None, :] ** 2))


def propagate(nx, ny, u, u_prev, velocity, wavelet):
    taper = damping(nx, ny)
    c2 = (velocity * DT) ** 2
    is_source = (jax.lax.axis_index("x") == 0) & (jax.lax.axis_index("y") == 0)

    def step(carry, amplitude):
        u, u_prev = carry
        lap = second_derivative(exchange(u, 0, "x", nx), 0) + second_derivative(exchange(u, 1, "y", ny), 1)
        new = taper * (2 * u - taper * u_prev + c2 * lap)
        new = new.at[64, 64].add(jnp.where(is_source, amplitude, 0.0))
        # One receiver line of this block, thinned.
        return (new, taper * u), new[HALO, ::16]

    (u, u_prev), seismogram = jax.lax.scan(step, (u, u_prev), wavelet)
    energy = jax.lax.psum(jnp.sum(u * u), ("x", "y"))
    return u, u_prev, seismogram[None], energy


def make_clean(devices):
    nx = ny = 2
    mesh = Mesh(np.array(devices).reshape(nx, ny), ("x", "y"))
    grid = P("x", "y")
    solver = jax.shard_map(
        functools.partial(propagate, nx, ny),
        mesh=mesh,
        in_specs=(grid, grid, grid, P()),
        out_specs=(grid, grid, P("x", None, "y"), P()),
        check_vma=False,
    )

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def advance(u, u_prev, velocity, t0):
        t = t0 + DT * jnp.arange(STEPS) - 0.05
        arg = (np.pi * 15.0 * t) ** 2
        return solver(u, u_prev, velocity, (1 - 2 * arg) * jnp.exp(-arg))

    field = jax.ShapeDtypeStruct((NX, NY), jnp.float32, sharding=NamedSharding(mesh, grid))
    t0 = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    return advance, (field, field, field, t0)
