"""An Equinox model's training step: arrays are arguments, the rest is closed over.

hlomem compile examples/jax/equinox_step.py:train_step --target tpu-v5e:2x2 --set batch=64
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


def train_step(batch=64, width=512, depth=4):
    """The factory: `eqx.filter_eval_shape` makes the model without allocating it."""
    optimizer = optax.adam(1e-3)
    model = eqx.filter_eval_shape(eqx.nn.MLP, width, width, width, depth, key=jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss_of(params, x, y):
        predicted = jax.vmap(eqx.combine(params, static))(x)
        return jnp.mean((predicted - y) ** 2)

    def step(params, opt_state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return eqx.apply_updates(params, updates), opt_state, loss

    rows = jax.ShapeDtypeStruct((batch, width), "float32")
    opt_state = jax.eval_shape(optimizer.init, params)
    return jax.jit(step, donate_argnums=(0, 1)), (params, opt_state, rows, rows)
