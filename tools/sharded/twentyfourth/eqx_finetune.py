# mypy: ignore-errors
"""Fault: optimizer. The layout patterns are tried with re.match, which anchors at the start of the path; Adam's paths
start with "[1].mu" or the like, so no pattern fits and the moments are whole on every device.

Full fine-tuning of an equinox language model, layouts chosen by regular expressions over tree paths.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PATTERNS = [
    (r"\.embed\.weight", P("fsdp", None)),
    (r"\.blocks\.(query|key|value|up)\.weight", P(None, "fsdp", None)),
    (r"\.blocks\.(out|down)\.weight", P(None, None, "fsdp")),
]


def layout(path, leaf):
    name = jax.tree_util.keystr(path)
    for pattern, spec in PATTERNS:
        if re.match(pattern, name):  # FAULT
            return spec
    return P()


def place(tree, mesh):
    def one(path, leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, layout(path, leaf)))

    return jax.tree_util.tree_map_with_path(one, tree)


class Block(eqx.Module):
    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    out: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norm1: eqx.nn.RMSNorm
    norm2: eqx.nn.RMSNorm
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, key):
        keys = jax.random.split(key, 6)
        linear = lambda i, o, k: eqx.nn.Linear(i, o, use_bias=False, key=k)
        self.query, self.key, self.value, self.out = (linear(width, width, k) for k in keys[:4])
        self.up, self.down = linear(width, 4 * width, keys[4]), linear(4 * width, width, keys[5])
        self.norm1, self.norm2 = eqx.nn.RMSNorm(width), eqx.nn.RMSNorm(width)
        self.heads = heads

    def __call__(self, x):
        split = lambda t: t.reshape(t.shape[0], self.heads, -1)
        y = jax.vmap(self.norm1)(x)
        q, k, v = (split(jax.vmap(f)(y)) for f in (self.query, self.key, self.value))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + jax.vmap(self.out)(attended)
        return x + jax.vmap(lambda t: self.down(jax.nn.gelu(self.up(self.norm2(t)))))(x)


class Model(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: Block
    norm: eqx.nn.RMSNorm

    def __init__(self, key, vocab=8192, width=1024, heads=8, depth=6):
        k, k_blocks = jax.random.split(key)
        self.embed = eqx.nn.Embedding(vocab, width, key=k)
        self.blocks = eqx.filter_vmap(lambda k: Block(width, heads, k))(jax.random.split(k_blocks, depth))
        self.norm = eqx.nn.RMSNorm(width)

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        stacked, static = eqx.partition(self.blocks, eqx.is_array)
        body = jax.checkpoint(lambda x, block: (eqx.combine(block, static)(x), None))
        x, _ = jax.lax.scan(body, x, stacked)
        return jax.vmap(self.norm)(x) @ self.embed.weight.T


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("fsdp",))
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    shapes, static = eqx.partition(eqx.filter_eval_shape(Model, jax.random.key(0)), is_shape)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-5))

    params = place(shapes, mesh)
    moments = place(jax.eval_shape(optimizer.init, shapes), mesh)  # FAULT
    tokens = jax.ShapeDtypeStruct((8, 256), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))

    def loss(params, tokens):
        logits = jax.vmap(eqx.combine(params, static))(tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    def step(params, moments, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, moments = optimizer.update(grads, moments, params)
        return eqx.apply_updates(params, updates), moments, value

    shardings = jax.tree.map(lambda leaf: leaf.sharding, (params, moments))
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*shardings, NamedSharding(mesh, P())))
    return jitted, (params, moments, tokens)
