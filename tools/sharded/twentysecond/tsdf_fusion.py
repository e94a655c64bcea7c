# mypy: ignore-errors
"""Fault: donated. The volume comes in split along x and leaves split along z, so none of the donated buffers
can be used for the result and the old and the new volume are held at once.

Depth-map fusion into a truncated signed distance volume with colour, a batch of camera frames per call.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SIDE, FRAMES, HEIGHT, WIDTH = 320, 6, 240, 320
VOXEL, TRUNCATION = 0.02, 0.08
FOCAL = 280.0


def volume_shapes():
    return {
        "distance": ((SIDE, SIDE, SIDE), jnp.float32),
        "weight": ((SIDE, SIDE, SIDE), jnp.float32),
        "colour": ((SIDE, SIDE, SIDE, 3), jnp.float32),
    }


def layout(mesh, axis):
    """The volume split along one of its three axes."""
    spec = P(*("slab" if a == axis else None for a in "xyz"))
    return {name: NamedSharding(mesh, spec) for name in volume_shapes()}


def project(pose):
    """Pixel coordinates and depth of every voxel centre."""
    i = (jnp.arange(SIDE, dtype=jnp.float32) - SIDE / 2) * VOXEL
    x, y, z = i[:, None, None], i[None, :, None], i[None, None, :]
    cx, cy, cz = (pose[r, 0] * x + pose[r, 1] * y + pose[r, 2] * z + pose[r, 3] for r in range(3))
    safe = jnp.maximum(cz, 1e-3)
    u = jnp.round(FOCAL * cx / safe + WIDTH / 2).astype(jnp.int32)
    v = jnp.round(FOCAL * cy / safe + HEIGHT / 2).astype(jnp.int32)
    return u, v, cz


def fuse_frame(pin, volume, frame):
    depth, rgb, pose = frame
    u, v, z = project(pose)
    seen = (u >= 0) & (u < WIDTH) & (v >= 0) & (v < HEIGHT) & (z > 0.1)
    flat = jnp.clip(v, 0, HEIGHT - 1) * WIDTH + jnp.clip(u, 0, WIDTH - 1)
    measured = depth.reshape(-1)[flat]
    sdf = measured - z
    use = seen & (measured > 0) & (sdf > -TRUNCATION)
    new = jnp.clip(sdf / TRUNCATION, -1.0, 1.0)
    weight = volume["weight"] + use
    share = jnp.where(use, 1.0 / jnp.maximum(weight, 1.0), 0.0)
    colour = volume["colour"]
    near = (share * (jnp.abs(sdf) < TRUNCATION))[..., None]
    return pin(
        {
            "distance": volume["distance"] + share * (new - volume["distance"]),
            "weight": jnp.minimum(weight, 64.0),
            "colour": colour + near * (rgb.reshape(-1, 3)[flat] - colour),
        }
    )


def fuse(pin, volume, depths, colours, poses):
    def body(volume, frame):
        return fuse_frame(pin, volume, frame), None

    return jax.lax.scan(body, volume, (depths, colours, poses))[0]


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices), ("slab",))
    slabs = layout(mesh, "x")
    whole = NamedSharding(mesh, P())

    def pin(volume):
        return jax.lax.with_sharding_constraint(volume, slabs)

    volume = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=slabs[name])
        for name, (shape, dtype) in volume_shapes().items()
    }
    integrate = jax.jit(
        partial(fuse, pin),
        donate_argnums=0,
        out_shardings=layout(mesh, "z"),  # FAULT
    )
    frames = (
        jax.ShapeDtypeStruct((FRAMES, HEIGHT, WIDTH), jnp.float32, sharding=whole),
        jax.ShapeDtypeStruct((FRAMES, HEIGHT, WIDTH, 3), jnp.float32, sharding=whole),
        jax.ShapeDtypeStruct((FRAMES, 3, 4), jnp.float32, sharding=whole),
    )
    return integrate, (volume, *frames)
