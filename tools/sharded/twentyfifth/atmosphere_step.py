# mypy: ignore-errors
"""Fault: reshard. On the way from horizontal planes to columns every chip gathers all levels of all fields and then
cuts its own band of latitudes out of them, so the whole state lies on every chip for a moment.

Time steps of a dry atmosphere: horizontal advection and diffusion by levels, implicit vertical mixing by columns.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FIELDS = ("u", "v", "theta", "q")
LEVELS, LATS, LONS = 64, 512, 1024
DT, DX, DZ = 30.0, 25_000.0, 300.0
VISCOSITY, MIXING = 1.0e4, 12.0
STEPS = 4
ALL = ("row", "col")

# A chip holds either some levels in full, or all levels of a band of latitudes.
PLANES = P(None, ALL, None, None)


def centred(a, axis):
    return (jnp.roll(a, -1, axis) - jnp.roll(a, 1, axis)) / (2 * DX)


def laplacian(a):
    out = -4.0 * a
    for axis in (-2, -1):
        out = out + jnp.roll(a, 1, axis) + jnp.roll(a, -1, axis)
    return out / DX**2


def horizontal(state):
    """Advects and diffuses; state is [field, own levels, lat, lon]."""
    u, v = state[0], state[1]
    advection = u * centred(state, -1) + v * centred(state, -2)
    return state + DT * (VISCOSITY * laplacian(state) - advection)


def mix_vertically(state):
    """Implicit diffusion along the levels; state is [field, level, own lats, lon]."""
    r = MIXING * DT / DZ**2
    # The matrix is the same in all columns: its elimination factors are numbers.
    factors, previous = [], 0.0
    for k in range(LEVELS):
        diagonal = 1.0 + (r if k in (0, LEVELS - 1) else 2.0 * r)
        pivot = diagonal - r * previous
        previous = r / pivot
        factors.append((1.0 / pivot, previous))
    inverse, upper = jnp.asarray(factors, jnp.float32).T
    levels = jnp.moveaxis(state, 1, 0)

    def down(above, x):
        value, inv = x
        value = (value + r * above) * inv
        return value, value

    def up(below, x):
        value, factor = x
        value = value + factor * below
        return value, value

    zero = jnp.zeros_like(levels[0])
    _, levels = lax.scan(down, zero, (levels, inverse))
    _, levels = lax.scan(up, zero, (levels, upper), reverse=True)
    return jnp.moveaxis(levels, 0, 1)


def planes_to_columns(state):
    """[field, own levels, lat, lon] -> [field, level, own lats, lon]"""
    band = LATS // lax.axis_size(ALL)
    everything = lax.all_gather(state, ALL, axis=1, tiled=True)  # FAULT
    return lax.dynamic_slice_in_dim(everything, lax.axis_index(ALL) * band, band, axis=2)  # FAULT


def columns_to_planes(state):
    """[field, level, own lats, lon] -> [field, own levels, lat, lon]"""
    return lax.all_to_all(state, ALL, split_axis=1, concat_axis=2, tiled=True)


def diagnostics(state):
    """Mean kinetic energy and mean potential temperature over the globe."""
    kinetic = 0.5 * jnp.mean(state[0] ** 2 + state[1] ** 2)
    return lax.pmean(jnp.stack([kinetic, jnp.mean(state[2])]), ALL)


def one_step(state, _):
    state = horizontal(state)
    columns = mix_vertically(planes_to_columns(state))
    state = columns_to_planes(columns)
    return state, diagnostics(state)


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ALL)

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=PLANES, out_specs=(PLANES, P()))
    def integrate(state):
        return lax.scan(one_step, state, None, length=STEPS)

    state = jax.ShapeDtypeStruct(
        (len(FIELDS), LEVELS, LATS, LONS), jnp.float32, sharding=NamedSharding(mesh, PLANES)
    )
    return jax.jit(integrate, donate_argnums=0), (state,)
