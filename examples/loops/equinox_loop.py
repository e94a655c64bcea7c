"""An Equinox model in training, and what its step needs: python examples/loops/equinox_loop.py."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import hlomem.jax

WIDTH, DEPTH, BATCH = 256, 2, 64
optimizer = optax.adam(1e-3)


def loss_of(model, x, y):
    """The mean square."""
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit(donate="all")
def train_step(model, opt_state, x, y):
    """One step; model and state are given away."""
    loss, gradients = eqx.filter_value_and_grad(loss_of)(model, x, y)
    updates, opt_state = optimizer.update(gradients, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def train(steps=2):
    """A few steps on ones."""
    model = eqx.nn.MLP(WIDTH, WIDTH, WIDTH, DEPTH, key=jax.random.key(0))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    for _ in range(steps):
        x, y = jnp.ones((BATCH, WIDTH)), jnp.ones((BATCH, WIDTH))
        model, opt_state, _ = train_step(model, opt_state, x, y)


if __name__ == "__main__":
    with hlomem.jax.captured() as compiles:
        train()
    print(compiles["train_step"].explanation)
