# mypy: ignore-errors
"""Training steps of flax.linen, flax.nnx and Equinox."""

import equinox as eqx
import flax.linen as nn
import jax
import optax
from flax import nnx

S = jax.ShapeDtypeStruct


class Block(nn.Module):
    heads: int = 8

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(h, h)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))))


class Model(nn.Module):
    layers: int

    @nn.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = Block()(x)
        return nn.Dense(1000)(x.mean(1))


class SetupModel(nn.Module):
    layers: int

    def setup(self):
        self.blocks = [Block() for _ in range(self.layers)]

    def __call__(self, x):
        for each in self.blocks:
            x = each(x)
        return x


def _linen(model, batch, length, d):
    opt = optax.adam(1e-3)

    @jax.jit
    def train_step(params, state, x):
        grads = jax.grad(lambda p: (model.apply(p, x) ** 2).mean())(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state

    x = S((batch, length, d), "float32")
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return train_step, (params, jax.eval_shape(opt.init, params), x)


def make_linen(batch=16, length=256, d=512, layers=6):
    return _linen(Model(layers), batch, length, d)


def make_linen_setup(batch=16, length=256, d=512, layers=6):
    return _linen(SetupModel(layers), batch, length, d)


class ScanBlock(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return Block()(x), None


class ScanModel(nn.Module):
    layers: int

    @nn.compact
    def __call__(self, x):
        scanned = nn.scan(
            ScanBlock, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers
        )
        return scanned()(x, None)[0]


def make_linen_scan(batch=16, length=256, d=512, layers=12):
    return _linen(ScanModel(layers), batch, length, d)


class Layer(nnx.Module):
    def __init__(self, d, rngs):
        self.norm = nnx.LayerNorm(d, rngs=rngs)
        self.up, self.down = nnx.Linear(d, 4 * d, rngs=rngs), nnx.Linear(4 * d, d, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Network(nnx.Module):
    def __init__(self, d, layers, rngs):
        self.layers = nnx.List([Layer(d, rngs) for _ in range(layers)])
        self.head = nnx.Linear(d, 10, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_nnx(batch=4096, d=1024, layers=8):
    graph, params = nnx.split(nnx.eval_shape(lambda: Network(d, layers, nnx.Rngs(0))))

    @jax.jit
    def train_step(params, x, y):
        def loss(params):
            logits = nnx.merge(graph, params)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    return train_step, (params, S((batch, d), "float32"), S((batch,), "int32"))


class Residual(eqx.Module):
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, d, key):
        one, two = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(d)
        self.up, self.down = eqx.nn.Linear(d, 4 * d, key=one), eqx.nn.Linear(4 * d, d, key=two)

    def __call__(self, x):
        return x + jax.vmap(lambda h: self.down(jax.nn.gelu(self.up(self.norm(h)))))(x)


class Stack(eqx.Module):
    layers: list

    def __init__(self, d, count, key):
        self.layers = [Residual(d, each) for each in jax.random.split(key, count)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def make_equinox(batch=4096, d=1024, layers=6):
    model = eqx.filter_eval_shape(Stack, d, layers, jax.random.key(0))
    arrays, static = eqx.partition(model, lambda leaf: isinstance(leaf, S))

    def train_step(arrays, x):
        def loss(arrays):
            return (eqx.combine(arrays, static)(x) ** 2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, arrays, jax.grad(loss)(arrays))

    return jax.jit(train_step), (arrays, S((batch, d), "float32"))
