"""A Keras model's training step on JAX: its variables are handed over as lists of arrays.

hlomem compile examples/jax/keras_step.py:train_step --target tpu-v5e:2x2 --set batch=64
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras


def train_step(batch=64, width=512, layers=4):
    """The factory: the step is Keras' stateless call, and its optimizer's."""
    inputs = keras.Input((width,))
    x = inputs
    for _ in range(layers):
        x = keras.layers.Dense(width, activation="gelu")(x)
    model = keras.Model(inputs, x)
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def loss_of(params, x, y):
        predicted, _ = model.stateless_call(params, [], x)
        return jnp.mean((predicted - y) ** 2)

    def step(params, opt_state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        params, opt_state = optimizer.stateless_apply(opt_state, gradients, params)
        return params, opt_state, loss

    rows = jax.ShapeDtypeStruct((batch, width), "float32")
    params = [shape_of(variable) for variable in model.trainable_variables]
    opt_state = [shape_of(variable) for variable in optimizer.variables]
    return jax.jit(step, donate_argnums=(0, 1)), (params, opt_state, rows, rows)


def shape_of(variable):
    """A variable without its values."""
    return jax.ShapeDtypeStruct(variable.shape, variable.dtype)
