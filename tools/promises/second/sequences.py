# mypy: ignore-errors
"""Sequences and sounds with Equinox, for a v5e."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

TARGETS = ("tpu-v5e:2x2",)


class Attention(eqx.Module):
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, width, key):
        a, b = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(8, width, key=a)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=b)

    def __call__(self, x):
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class Speech(eqx.Module):
    front: eqx.nn.Conv1d
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, width, layers, key):
        a, b, *keys = jax.random.split(key, 2 + layers)
        self.front = eqx.nn.Conv1d(80, width, 3, stride=2, padding=1, key=a)
        self.blocks = [Attention(width, k) for k in keys]
        self.head = eqx.nn.Linear(width, 64, key=b)

    def __call__(self, mel):
        x = jax.nn.gelu(self.front(mel)).T
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def make_speech(batch=16, frames=1024, width=512, layers=6):
    """CTC over an encoder of unrolled blocks."""
    optimizer = optax.adam(1e-3)
    model = eqx.filter_eval_shape(Speech, width, layers, jax.random.key(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    state = jax.eval_shape(optimizer.init, params)

    @jax.value_and_grad
    def loss_fn(params, mel, labels):
        logits = jax.vmap(eqx.combine(params, static))(mel)
        no = jnp.zeros(logits.shape[:2])
        return optax.ctc_loss(logits, no, labels, jnp.zeros(labels.shape)).mean()

    @jax.jit
    def step(params, state, mel, labels):
        loss, grads = loss_fn(params, mel, labels)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(params, updates), state, loss

    mel = jax.ShapeDtypeStruct((batch, 80, frames), jnp.float32)
    return step, (params, state, mel, jax.ShapeDtypeStruct((batch, 48), jnp.int32))


class Forecaster(eqx.Module):
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, inputs, hidden, key):
        a, b = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(inputs, hidden, key=a)
        self.out = eqx.nn.Linear(hidden, inputs, key=b)

    def __call__(self, xs):
        def step(h, x):
            h = self.cell(x, h)
            return h, self.out(h)

        _, ys = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), xs)
        return ys


def make_forecast(batch=256, length=256, inputs=64, hidden=512):
    """A recurrent network that forecasts the next value."""
    model = eqx.filter_eval_shape(Forecaster, inputs, hidden, jax.random.key(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    @jax.jit
    def step(params, xs):
        def loss_fn(params):
            model = eqx.combine(params, static)
            return jnp.mean((jax.vmap(model)(xs[:, :-1]) - xs[:, 1:]) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return eqx.apply_updates(params, jax.tree.map(lambda g: -0.01 * g, grads)), loss

    return step, (params, jax.ShapeDtypeStruct((batch, length, inputs), jnp.float32))
