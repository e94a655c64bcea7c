# mypy: ignore-errors
"""Clean. Finite-difference time-domain simulation of an antenna: bricks of the box on a grid of chips inside a
shard_map, halos sent to the neighbours, and pictures of one plane stacked brick by brick."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Box:
    x: int = 512
    y: int = 512
    z: int = 256
    pictures: int = 16
    between: int = 12
    courant: float = 0.5
    frequency: float = 0.04


FIELDS = P(None, "x", "y", None)
MATERIAL = P("x", "y", None)
PICTURES = P(None, "x", "y")


def neighbour(plane, axis, step):
    size = lax.axis_size(axis)
    return lax.ppermute(plane, axis, [(i, (i - step) % size) for i in range(size)])


def shifted(field, dimension, step):
    """The field one cell further, across the border of the brick where x or y is meant."""
    if dimension == 2:
        return jnp.roll(field, -step, 2)
    axis = ("x", "y")[dimension]
    size = field.shape[dimension]
    border = lax.slice_in_dim(field, 0, 1, axis=dimension) if step > 0 else lax.slice_in_dim(
        field, size - 1, size, axis=dimension
    )
    border = neighbour(border, axis, step)
    if step > 0:
        return jnp.concatenate([lax.slice_in_dim(field, 1, size, axis=dimension), border], dimension)
    return jnp.concatenate([border, lax.slice_in_dim(field, 0, size - 1, axis=dimension)], dimension)


def curl(field, step):
    def slope(component, dimension):
        return step * (shifted(field[component], dimension, step) - field[component])

    return jnp.stack([
        slope(2, 1) - slope(1, 2),
        slope(0, 2) - slope(2, 0),
        slope(1, 0) - slope(0, 1),
    ])


def make_run(box, mesh):
    bricks = mesh.shape["x"], mesh.shape["y"]
    middle = (box.x // 2, box.y // 2)

    def feed(electric, time):
        local = (box.x // bricks[0], box.y // bricks[1])
        at = [m - lax.axis_index(name) * n for m, n, name in zip(middle, local, ("x", "y"))]
        inside = (at[0] >= 0) & (at[0] < local[0]) & (at[1] >= 0) & (at[1] < local[1])
        spot = [jnp.clip(a, 0, n - 1) for a, n in zip(at, local)]
        pulse = jnp.where(inside, jnp.sin(2 * jnp.pi * box.frequency * time), 0.0)
        return electric.at[2, spot[0], spot[1], box.z // 2].add(pulse)

    def run(electric, magnetic, permittivity, loss, start):
        def tick(i, carry):
            electric, magnetic, time = carry
            magnetic = magnetic - box.courant * curl(electric, 1)
            electric = (1.0 - loss) * electric + box.courant / permittivity * curl(magnetic, -1)
            return feed(electric, time), magnetic, time + box.courant

        def picture(carry, _):
            carry = lax.fori_loop(0, box.between, tick, carry)
            return carry, carry[0][2, :, :, box.z // 2]

        (electric, magnetic, time), pictures = lax.scan(
            picture, (electric, magnetic, start), None, length=box.pictures
        )
        energy = lax.psum(jnp.sum(permittivity * electric**2) + jnp.sum(magnetic**2), ("x", "y"))
        return electric, magnetic, pictures, energy, time

    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(FIELDS, FIELDS, MATERIAL, MATERIAL, P()),
        out_specs=(FIELDS, FIELDS, PICTURES, P(), P()),
    )


def make_clean(devices):
    box = Box()
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("x", "y"))

    def array(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    shape = (box.x, box.y, box.z)
    fields, material = array((3, *shape), FIELDS), array(shape, MATERIAL)
    return jax.jit(make_run(box, mesh), donate_argnums=(0, 1)), (fields, fields, material, material, array((), P()))
