# mypy: ignore-errors
"""Clean. Low-rank fine-tuning of a frozen int8 base: the base is divided over the model axis (whole over data), the adapters, their moments
and the quantisation scales are small and whole."""
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
LAYERS, D, FF, HEADS, RANK, VOCAB, BATCH, SEQ = 6, 1024, 4096, 8, 8, 8192, 8, 256


class Quantised(eqx.Module):
    """An int8 matrix with a scale per output, and a trained low-rank addition."""
    codes: Any
    scales: Any
    a: Any
    b: Any
    layout: P = eqx.field(static=True)

    @classmethod
    def abstract(cls, mesh, rows, columns, layout):
        sds = lambda s, d, p: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, p))
        return cls(sds((rows, columns), jnp.int8, layout), sds((columns,), jnp.float32, P()),
                   sds((rows, RANK), jnp.float32, P()), sds((RANK, columns), jnp.float32, P()), layout)

    def __call__(self, x):
        return (x @ self.codes.astype(x.dtype)) * self.scales + (x @ self.a) @ self.b


class Block(eqx.Module):
    q: Quantised
    k: Quantised
    v: Quantised
    o: Quantised
    up: Quantised
    down: Quantised

    def __call__(self, x):
        h = jax.nn.standardize(x)
        heads = lambda t: t.reshape(*t.shape[:2], HEADS, -1)
        mixed = jax.nn.dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), is_causal=True)
        x = x + self.o(mixed.reshape(x.shape))
        return x + self.down(jax.nn.gelu(self.up(jax.nn.standardize(x))))


class Model(eqx.Module):
    embed: Any
    blocks: list

    def __call__(self, tokens):
        x = self.embed[tokens].astype(jnp.float32)
        for block in self.blocks:
            x = eqx.filter_checkpoint(block)(x)
        return jax.nn.standardize(x) @ self.embed.T.astype(jnp.float32)


def trained(model):
    """True for the adapters, False for all of the base."""
    spec = jax.tree.map(lambda _: False, model)
    is_q = lambda m: isinstance(m, Quantised)
    mark = lambda m: eqx.tree_at(lambda q: (q.a, q.b), m, (True, True)) if is_q(m) else m
    return jax.tree.map(mark, spec, is_leaf=is_q)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    column, row = P(None, "model"), P("model", None)
    make = lambda r, c, p: Quantised.abstract(mesh, r, c, p)
    block = lambda: Block(*(make(D, D, column) for _ in range(3)), make(D, D, row), make(D, FF, column), make(FF, D, row))
    embed = jax.ShapeDtypeStruct((VOCAB, D), jnp.bfloat16, sharding=NamedSharding(mesh, P("model", None)))
    model = Model(embed, [block() for _ in range(LAYERS)])
    adapters, base = eqx.partition(model, trained(model))
    opt = optax.adam(1e-4)
    whole = NamedSharding(mesh, P())
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), jax.eval_shape(opt.init, adapters))

    def step(adapters, state, base, tokens):
        def loss_fn(a):
            logits = eqx.combine(a, base)(tokens[:, :-1])
            logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data", None, "model")))
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(adapters)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(adapters, updates), state, loss

    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=whole), (adapters, state, base, tokens)
