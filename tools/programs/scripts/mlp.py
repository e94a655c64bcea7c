"""One training step of a multi-layer perceptron in plain JAX, with momentum."""

import compiling
import jax
import jax.numpy as jnp

config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    barrier=False,
    scan=False,
    upcast=False,
    dtype="float32",
    batch=4096,
    layers=6,
    width=1024,
    outputs=1000,
    mesh=1,
    axis="data",
)


def layer(x, w):
    hidden = x @ w["kernel"] + w["bias"]
    if config.barrier:
        hidden = jax.lax.optimization_barrier(hidden)
    return jnp.tanh(hidden) * jax.nn.sigmoid(hidden)


def loss_fn(params, x, labels):
    x = x.astype(config.dtype)
    weights = jax.tree.map(lambda w: w.astype(config.dtype), params)
    step = jax.checkpoint(layer) if config.remat else layer
    if config.scan:
        x, _ = jax.lax.scan(lambda h, w: (step(h, w), None), x, weights["layers"])
    else:
        for i in range(config.layers):
            x = step(x, compiling.taken(weights["layers"], i))
    head = weights["head"]
    wide = jnp.float32 if config.upcast else None
    logits = jnp.matmul(x, head, preferred_element_type=wide)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


def train_step(params, momentum, x, labels):
    grads = jax.grad(loss_fn)(params, x, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum


place = compiling.Mesh(config.platform, config.mesh)
data = config.axis == "data"
shape = (config.layers, config.width)
params = {
    "layers": {
        "kernel": place.array((*shape, config.width), jnp.float32, None if data else 2),
        "bias": place.array(shape, jnp.float32, None if data else 1),
    },
    "head": place.array((config.width, config.outputs), jnp.float32, None if data else 0),
}
x = place.array((config.batch, config.width), jnp.float32, 0 if data else 1)
labels = place.array((config.batch,), jnp.int32, 0 if data else None)
step = jax.jit(train_step, donate_argnames=("params", "momentum") if config.donate else ())
compiling.compile_and_report(step.lower(params, params, x, labels), "train_step")
