"""A Flax NNX model in training, and what its step needs: python examples/loops/flax_nnx_loop.py."""

from __future__ import annotations

import jax.numpy as jnp
import optax
from flax import nnx

import hlomem.jax

WIDTH, LAYERS, BATCH = 256, 3, 64


class Mlp(nnx.Module):
    """Dense layers."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(LAYERS)])

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.gelu(layer(x))
        return x


@nnx.jit
def train_step(model, optimizer, x, y):
    """One step, in place as NNX has it."""
    loss, gradients = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def train(steps=2):
    """A few steps on ones."""
    model = Mlp(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    rows = jnp.ones((BATCH, WIDTH))
    for _ in range(steps):
        train_step(model, optimizer, rows, rows)


if __name__ == "__main__":
    with hlomem.jax.captured() as compiles:
        train()
    print(compiles["train_step"].explanation)
