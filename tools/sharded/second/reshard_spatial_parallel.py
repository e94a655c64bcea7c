# mypy: ignore-errors
"""Fault: reshard. A segmentation net on 4 x 4 chips computes pixel features data-parallel and then goes over to spatial parallelism in one constraint; the partitioner puts the whole batch on every chip on the way."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
IMAGES, SIDE, CHANNELS = 32, 256, 32


def conv(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def segment(params, images, *, to_spatial):
    features = jnp.tanh(images @ params["stem"])                   # one pixel at a time, images apart
    features = features / (1e-3 + jnp.abs(features).max((1, 2), keepdims=True))
    features = to_spatial(features)
    for kernel in params["convs"]:
        features = jax.nn.relu(conv(features, kernel))
    return jnp.argmax(features, -1).astype(jnp.int8)


def inputs(mesh):
    small = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P()))
    images = jax.ShapeDtypeStruct((IMAGES, SIDE, SIDE, CHANNELS), jnp.float32, sharding=NamedSharding(mesh, P(("r", "c"))))
    return {"stem": small(CHANNELS, CHANNELS), "convs": [small(3, 3, CHANNELS, CHANNELS)] * 2}, images


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("r", "c"))

    def to_spatial(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "r", "c")))  # FAULT

    fn = jax.jit(lambda p, x: segment(p, x, to_spatial=to_spatial), out_shardings=NamedSharding(mesh, P(None, "r", "c")))
    return fn, inputs(mesh)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("r", "c"))

    def to_spatial(x):
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(("r", "c"))))
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("r", None, "c")))
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "r", "c")))

    fn = jax.jit(lambda p, x: segment(p, x, to_spatial=to_spatial), out_shardings=NamedSharding(mesh, P(None, "r", "c")))
    return fn, inputs(mesh)
