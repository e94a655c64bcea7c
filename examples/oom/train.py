"""One step of training a deep network: a scan over its layers, differentiated."""

import jax
import jax.numpy as jnp


def layer(h, w):
    return jnp.tanh(h @ w), None


def loss(params, x, y):
    h, _ = jax.lax.scan(layer, x, params["layers"])
    return jnp.mean((h @ params["head"] - y) ** 2)


def train_step(params, opt_state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, grads)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, params, opt_state)
    return params, opt_state, value


step = jax.jit(train_step)


def make_step(batch: int = 10240):
    """What `hlomem compile` plans: a function and the shapes of its arguments."""
    params = {
        "layers": jax.ShapeDtypeStruct((48, 4096, 4096), "float32"),
        "head": jax.ShapeDtypeStruct((4096, 1000), "float32"),
    }
    x = jax.ShapeDtypeStruct((batch, 4096), "float32")
    y = jax.ShapeDtypeStruct((batch, 1000), "float32")
    return step, (params, params, x, y)
