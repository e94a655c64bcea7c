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
