# mypy: ignore-errors
"""Clean. Acoustic wave equation with halo exchange in shard_map; the small source wavelet and the receivers' list are replicated on purpose."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

GRID = (384, 384, 192)
STEPS = 32
RECEIVERS = 64
HALO = 2
C0, C1, C2 = -2.5, 4.0 / 3.0, -1.0 / 12.0


def exchange(u, axis_name, dim):
    """Pads `u` with HALO planes of the neighbours; zero outside the domain."""
    n = lax.axis_size(axis_name)
    size = u.shape[dim]
    low = lax.slice_in_dim(u, 0, HALO, axis=dim)
    high = lax.slice_in_dim(u, size - HALO, size, axis=dim)
    from_left = lax.ppermute(high, axis_name, [(i, i + 1) for i in range(n - 1)])
    from_right = lax.ppermute(low, axis_name, [(i + 1, i) for i in range(n - 1)])
    return jnp.concatenate([from_left, u, from_right], axis=dim)


def second_difference(padded, dim, size):
    take = lambda o: lax.slice_in_dim(padded, HALO + o, HALO + o + size, axis=dim)
    return C0 * take(0) + C1 * (take(1) + take(-1)) + C2 * (take(2) + take(-2))


def laplacian(u):
    dx = second_difference(exchange(u, "px", 0), 0, u.shape[0])
    dy = second_difference(exchange(u, "py", 1), 1, u.shape[1])
    dz = second_difference(jnp.pad(u, ((0, 0), (0, 0), (HALO, HALO))), 2, u.shape[2])
    return dx + dy + dz


def inject(u, value):
    """Adds the source in the middle of the domain, on the device that owns it."""
    i, j = lax.axis_index("px"), lax.axis_index("py")
    mine = (i == lax.axis_size("px") // 2) & (j == lax.axis_size("py") // 2)
    return u.at[0, 0, 8].add(jnp.where(mine, value, 0.0))


def record(u, receivers):
    nx, ny, _ = u.shape
    ix = receivers[:, 0] - lax.axis_index("px") * nx
    iy = receivers[:, 1] - lax.axis_index("py") * ny
    inside = (ix >= 0) & (ix < nx) & (iy >= 0) & (iy < ny)
    here = jnp.where(inside, u[ix.clip(0, nx - 1), iy.clip(0, ny - 1), 0], 0.0)
    return lax.psum(here, ("px", "py"))


def shot(u, u_prev, velocity, wavelet, receivers):
    def body(carry, amplitude):
        u, u_prev = carry
        u_next = 2.0 * u - u_prev + velocity * velocity * laplacian(u)
        u_next = inject(u_next, amplitude)
        return (u_next, u), record(u_next, receivers)

    (u, u_prev), traces = lax.scan(body, (u, u_prev), wavelet)
    return u, u_prev, traces


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("px", "py"))
    block, everywhere = P("px", "py", None), P()
    program = jax.shard_map(
        shot,
        mesh=mesh,
        in_specs=(block, block, block, everywhere, everywhere),
        out_specs=(block, block, everywhere),
    )
    field = jax.ShapeDtypeStruct(GRID, jnp.float32, sharding=NamedSharding(mesh, block))
    wavelet = jax.ShapeDtypeStruct((STEPS,), jnp.float32, sharding=NamedSharding(mesh, everywhere))
    receivers = jax.ShapeDtypeStruct((RECEIVERS, 2), jnp.int32, sharding=NamedSharding(mesh, everywhere))
    return jax.jit(program, donate_argnums=(0, 1)), (field, field, field, wavelet, receivers)
