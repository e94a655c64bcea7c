# mypy: ignore-errors
"""Clean. Finite-difference time-domain solution of Maxwell's equations in a box cut into bricks along two axes; each
chip keeps its brick and exchanges one layer of cells with its neighbours.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

NX, NY, NZ = 384, 384, 128
STEPS_PER_SAMPLE, SAMPLES = 5, 20
COURANT = 0.5
BRICK = P("x", "y", None)


def shifted(field, dim, by):
    """The field moved by one cell along a dimension (by = +1: the value of the next cell), with a periodic box."""
    name = BRICK[dim]
    if name is None:
        return jnp.roll(field, -by, dim)
    size = lax.axis_size(name)
    last = field.shape[dim] - 1
    edge = lax.slice_in_dim(field, 0, 1, axis=dim) if by > 0 else lax.slice_in_dim(field, last, last + 1, axis=dim)
    edge = lax.ppermute(edge, name, [(i, (i - by) % size) for i in range(size)])
    if by > 0:
        return lax.concatenate([lax.slice_in_dim(field, 1, None, axis=dim), edge], dim)
    return lax.concatenate([edge, lax.slice_in_dim(field, 0, last, axis=dim)], dim)


def curl(f, by):
    difference = lambda c, dim: by * (shifted(f[c], dim, by) - f[c])
    return (
        difference(2, 1) - difference(1, 2),
        difference(0, 2) - difference(2, 0),
        difference(1, 0) - difference(0, 1),
    )


def source(time, shape):
    """A pulse at the first cell of the first brick."""
    here = (lax.axis_index("x") == 0) & (lax.axis_index("y") == 0)
    pulse = jnp.where(here, jnp.exp(-(((time - 30.0) / 10.0) ** 2)), 0.0)
    return jnp.zeros(shape, jnp.float32).at[0, 0, 0].set(pulse)


def advance(fields, permittivity, time):
    electric, magnetic = fields
    magnetic = tuple(h - COURANT * c for h, c in zip(magnetic, curl(electric, +1)))
    electric = tuple(e + COURANT / permittivity * c for e, c in zip(electric, curl(magnetic, -1)))
    electric = (*electric[:2], electric[2] + source(time, electric[2].shape))
    return electric, magnetic


def simulate(fields, permittivity):
    def sample(carry, _):
        fields, time = carry
        for _ in range(STEPS_PER_SAMPLE):
            fields, time = advance(fields, permittivity, time), time + 1.0
        electric, magnetic = fields
        energy = sum(jnp.sum(permittivity * e * e) for e in electric) + sum(jnp.sum(h * h) for h in magnetic)
        plane = electric[2][:, :, NZ // 2]
        return (fields, time), (lax.psum(energy, ("x", "y")), plane)

    (fields, _), (energies, planes) = lax.scan(sample, (fields, jnp.float32(0)), length=SAMPLES)
    return fields, energies, planes


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("x", "y"))
    component = jax.ShapeDtypeStruct((NX, NY, NZ), jnp.float32, sharding=NamedSharding(mesh, BRICK))
    vector = (BRICK,) * 3
    mapped = jax.shard_map(
        simulate,
        mesh=mesh,
        in_specs=((vector, vector), BRICK),
        out_specs=((vector, vector), P(), P(None, "x", "y")),
    )
    return jax.jit(mapped, donate_argnums=0), (((component,) * 3, (component,) * 3), component)
