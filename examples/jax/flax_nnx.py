"""A Flax NNX model's training step: the model is split into its graph and its state.

hlomem compile examples/jax/flax_nnx.py:train_step --target tpu-v5e:2x2 --set batch=64
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Mlp(nnx.Module):
    """Dense layers."""

    def __init__(self, width, layers, rngs):
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(layers)])

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.gelu(layer(x))
        return x


def train_step(batch=64, width=512, layers=4):
    """The factory: shapes of model and optimizer come from `nnx.eval_shape`."""

    def make():
        model = Mlp(width, layers, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(make))

    def step(state, x, y):
        model, optimizer = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    rows = jax.ShapeDtypeStruct((batch, width), "float32")
    return jax.jit(step, donate_argnums=0), (state, rows, rows)
