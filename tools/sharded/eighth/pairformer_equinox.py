# mypy: ignore-errors
"""Fault: replicated. The pair representation is constrained to `row` alone and is therefore whole along `col`, although
the template features and the distance targets are split over both axes; it costs half of every pair activation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RESIDUES, SINGLE, PAIR, BINS, BLOCKS = 512, 256, 128, 64, 2

PAIR_SPEC = P("row", None, None)  # FAULT
FEATURE_SPEC = P("row", "col", None)


class Linear(eqx.Module):
    weight: jax.Array

    def __init__(self, key, fan_in, fan_out):
        self.weight = jax.random.normal(key, (fan_in, fan_out)) * fan_in**-0.5

    def __call__(self, x):
        return x @ self.weight.astype(x.dtype)


def layer_norm(x):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.astype(x.dtype)


class TriangleMultiplication(eqx.Module):
    left: Linear
    right: Linear
    gate: Linear
    out: Linear

    def __init__(self, key):
        self.left, self.right, self.gate, self.out = (Linear(k, PAIR, PAIR) for k in jax.random.split(key, 4))

    def __call__(self, z):
        y = layer_norm(z)
        prod = jnp.einsum("ikc,jkc->ijc", self.left(y), self.right(y)) / RESIDUES
        return jax.nn.sigmoid(self.gate(y)) * self.out(layer_norm(prod))


class Transition(eqx.Module):
    up: Linear
    down: Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.up, self.down = Linear(a, PAIR, 4 * PAIR), Linear(b, 4 * PAIR, PAIR)

    def __call__(self, z):
        return self.down(jax.nn.relu(self.up(layer_norm(z))))


class Pairformer(eqx.Module):
    rows: Linear
    cols: Linear
    template: Linear
    blocks: list
    distogram: Linear

    def __init__(self, key):
        ks = jax.random.split(key, 4 + 2 * BLOCKS)
        self.rows, self.cols = Linear(ks[0], SINGLE, PAIR), Linear(ks[1], SINGLE, PAIR)
        self.template = Linear(ks[2], 16, PAIR)
        self.blocks = [(TriangleMultiplication(ks[4 + 2 * i]), Transition(ks[5 + 2 * i])) for i in range(BLOCKS)]
        self.distogram = Linear(ks[3], PAIR, BINS)

    def __call__(self, single, templates, pin):
        z = self.rows(single)[:, None] + self.cols(single)[None, :] + self.template(templates)
        z = pin(z)
        for triangle, transition in self.blocks:

            @jax.checkpoint
            def block(z, triangle=triangle, transition=transition):
                z = pin(z + triangle(z))
                return pin(z + transition(z))

            z = block(z)
        return self.distogram(z + jnp.swapaxes(z, 0, 1))


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("row", "col"))
    whole, tiles = NamedSharding(mesh, P()), NamedSharding(mesh, FEATURE_SPEC)
    tx = optax.adam(1e-3)

    def pin(z):
        return jax.lax.with_sharding_constraint(z, NamedSharding(mesh, PAIR_SPEC))  # FAULT

    def init(key):
        model = Pairformer(key)
        return model, tx.init(model)

    # A few hundred thousand parameters: data and memory are all in the pair activations.
    state = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole),
                         jax.eval_shape(init, jax.random.key(0)))

    def loss_fn(model, single, templates, target):
        logits = model(single, templates, pin).astype(jnp.float32)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * target, axis=-1))

    def step(state, single, templates, target):
        model, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(model, single, templates, target)
        updates, opt = tx.update(grads, opt)
        return (optax.apply_updates(model, updates), opt), loss

    args = (
        state,
        jax.ShapeDtypeStruct((RESIDUES, SINGLE), jnp.bfloat16, sharding=whole),
        jax.ShapeDtypeStruct((RESIDUES, RESIDUES, 16), jnp.bfloat16, sharding=tiles),
        jax.ShapeDtypeStruct((RESIDUES, RESIDUES, BINS), jnp.float32, sharding=tiles),
    )
    return jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)), args
