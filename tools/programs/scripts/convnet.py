"""One training step of a plain convolutional network, channels first or last."""

import compiling
import jax
import jax.numpy as jnp
from jax import lax

config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    barrier=False,
    dtype="float32",
    batch=32,
    size=64,
    channels=32,
    layers=4,
    fold=1,
    layout="NHWC",
)


def convolve(x, kernel, stride):
    axes = (config.layout, "HWIO", config.layout)
    return lax.conv_general_dilated(x, kernel, stride, "SAME", dimension_numbers=axes)


def layer(x, kernel):
    y = convolve(x, kernel, (1, 1))
    if config.barrier:
        y = lax.optimization_barrier(y)
    return x + jax.nn.gelu(y)


def loss_fn(params, images, labels):
    x = convolve(images.astype(config.dtype), params["stem"].astype(config.dtype), (1, 1))
    step = jax.checkpoint(layer) if config.remat else layer
    for kernel in params["body"]:
        x = step(x, kernel.astype(config.dtype))
    pooled = x.mean((1, 2) if config.layout == "NHWC" else (2, 3)).astype(jnp.float32)
    logits = jax.nn.log_softmax(pooled @ params["head"])
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))


def train_step(params, images, labels):
    grads = jax.grad(loss_fn)(params, images, labels)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


# `fold` moves blocks of fold × fold pixels into the channels.
fold, size = config.fold, config.size // config.fold
ch, planes = config.channels * fold**2, 3 * fold**2
params = {
    "stem": jax.ShapeDtypeStruct((3, 3, planes, ch), jnp.float32),
    "body": [jax.ShapeDtypeStruct((3, 3, ch, ch), jnp.float32)] * config.layers,
    "head": jax.ShapeDtypeStruct((ch, 1000), jnp.float32),
}
last = config.layout == "NHWC"
shape = (config.batch, size, size, planes) if last else (config.batch, planes, size, size)
images = jax.ShapeDtypeStruct(shape, jnp.float32)
labels = jax.ShapeDtypeStruct((config.batch,), jnp.int32)
arguments = compiling.placed((params, images, labels), compiling.single(config.platform))
step = jax.jit(train_step, donate_argnames=("params",) if config.donate else ())
compiling.compile_and_report(step.lower(*arguments), "train_step")
