"""One training step of layers of experts, each token sent to one of them."""

import compiling
import jax
import jax.numpy as jnp

config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    dtype="float32",
    tokens=4096,
    layers=3,
    d=512,
    experts=8,
    mesh=1,
)
D, E = config.d, config.experts
CAPACITY = config.tokens // E


def layer(x, w):
    gates = jax.nn.softmax(x @ w["router"])
    chosen = jax.nn.one_hot(jnp.argmax(gates, -1), E, dtype=x.dtype)
    place = (jnp.cumsum(chosen, 0) * chosen).astype(jnp.int32) - 1
    dispatch = jax.nn.one_hot(place, CAPACITY, dtype=x.dtype) * chosen[..., None]
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", sent, w["up"]))
    back = jnp.einsum("ecf,efd->ecd", hidden, w["down"])
    weight = dispatch * (gates * chosen)[..., None]
    return x + jnp.einsum("tec,ecd->td", weight, back)


def loss_fn(params, x, y):
    weights = jax.tree.map(lambda w: w.astype(config.dtype), params)
    h = x.astype(config.dtype)
    step = jax.checkpoint(layer) if config.remat else layer
    for w in weights:
        h = step(h, w)
    return jnp.mean((h.astype(jnp.float32) - y) ** 2)


def train_step(params, x, y):
    grads = jax.grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


place = compiling.Mesh(config.platform, config.mesh)
weights = {
    "router": place.array((D, E), jnp.float32),
    "up": place.array((E, D, 4 * D), jnp.float32, 0),
    "down": place.array((E, 4 * D, D), jnp.float32, 0),
}
rows = place.array((config.tokens, D), jnp.float32)
step = jax.jit(train_step, donate_argnames=("params",) if config.donate else ())
compiling.compile_and_report(step.lower([weights] * config.layers, rows, rows), "train_step")
