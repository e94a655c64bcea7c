# mypy: ignore-errors
"""Clean. Plain data parallelism: a small convolutional net is replicated, the images are split."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CHANNELS = (3, 32, 64, 64)
CLASSES = 100


def conv(x, w, stride):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def forward(params, images):
    h = images
    for i, w in enumerate(params["convs"]):
        h = jax.nn.relu(conv(h, w, 1 if i == 0 else 2))
    return h.mean(axis=(1, 2)) @ params["head"]


def loss_fn(params, images, labels):
    logp = jax.nn.log_softmax(forward(params, images))
    return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], axis=1))


def sgd(params, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    replicated, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = {
        "convs": [
            jax.ShapeDtypeStruct((3, 3, cin, cout), jnp.float32, sharding=replicated)
            for cin, cout in zip(CHANNELS, CHANNELS[1:])
        ],
        "head": jax.ShapeDtypeStruct((CHANNELS[-1], CLASSES), jnp.float32, sharding=replicated),
    }
    images = jax.ShapeDtypeStruct((128, 128, 128, 3), jnp.float32, sharding=split)
    labels = jax.ShapeDtypeStruct((128,), jnp.int32, sharding=split)
    step = jax.jit(sgd, donate_argnums=0, out_shardings=(replicated, replicated))
    return step, (params, images, labels)
