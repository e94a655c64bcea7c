"""A model in plain JAX in training: python examples/loops/bare_loop.py."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

import hlomem.jax

WIDTH, LAYERS, BATCH = 256, 3, 64


def layer(h, w):
    """One dense layer."""
    return jnp.tanh(h @ w), None


def loss_of(params, x, y):
    """The mean square after a scan over the layers."""
    h, _ = jax.lax.scan(layer, x, params)
    return jnp.mean((h - y) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x, y):
    """One step of gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return params - 0.1 * gradients, loss


def train(steps=2):
    """A few steps on ones."""
    params = jnp.ones((LAYERS, WIDTH, WIDTH)) / WIDTH
    for _ in range(steps):
        params, _ = train_step(params, jnp.ones((BATCH, WIDTH)), jnp.ones((BATCH, WIDTH)))


if __name__ == "__main__":
    with hlomem.jax.captured() as compiles:
        train()
    print(compiles["train_step"].explanation)
