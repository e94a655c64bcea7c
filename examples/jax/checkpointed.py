"""A training step that says itself what jax.checkpoint is to be put around: each of its layers.

    hlomem improve examples/jax/checkpointed.py:train_step --target cpu --pareto --fit 48MiB

The factory's parameter `checkpoint` is a function around a layer; by default it does nothing.
hlomem calls the factory once for each of jax.checkpoint's standard policies, with
`jax.checkpoint(…, policy=…)` instead of its default, and shows XLA's plans next to its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def layer(x, w):
    q, k, v = jnp.split(norm(x) @ w["qkv"], 3, -1)
    x = x + jax.nn.softmax(q @ k.mT / q.shape[-1] ** 0.5) @ v @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def train_step(batch=8, length=256, width=128, layers=4, checkpoint=lambda function: function):
    """The factory: a training step with momentum, and the shapes of its arguments."""

    def loss(params, x):
        for w in params:
            x = checkpoint(layer)(x, w)
        return jnp.mean(jnp.square(x))

    def step(params, opt_state, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state["momentum"], gradients)
        params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
        return params, {"momentum": momentum}, value

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, "float32")

    one = {
        "qkv": array(width, 3 * width),
        "out": array(width, width),
        "up": array(width, 4 * width),
        "down": array(4 * width, width),
    }
    params = [one] * layers
    arguments = params, {"momentum": params}, array(batch, length, width)
    return jax.jit(step, donate_argnums=(0, 1)), arguments
