# mypy: ignore-errors
"""Clean. Masked language model of proteins, FSDP over 8 devices, with parameters and Adam state split alike.
"""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Config:
    residues: int = 32
    depth: int = 6
    width: int = 768
    heads: int = 12
    hidden: int = 3072
    length: int = 256
    batch: int = 16


RULES = (
    (r"(embed|unembed)$", P(None, "fsdp")),
    (r"blocks/\d+/attn/(qkv|out)$", P("fsdp", None)),
    (r"blocks/\d+/(up|down)$", P("fsdp", None)),
)


def uniform(key, shape):
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Norm(eqx.Module):
    scale: jax.Array

    def __init__(self, width):
        self.scale = jnp.ones((width,))

    def __call__(self, x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * self.scale


class Attention(eqx.Module):
    qkv: jax.Array
    out: jax.Array
    heads: int = eqx.field(static=True)

    def __init__(self, cfg, key):
        k1, k2 = jax.random.split(key)
        self.qkv = uniform(k1, (cfg.width, 3 * cfg.width))
        self.out = uniform(k2, (cfg.width, cfg.width))
        self.heads = cfg.heads

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split((x @ self.qkv).reshape(b, t, self.heads, -1), 3, axis=-1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d // self.heads)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
        return mixed.reshape(b, t, d) @ self.out


class Block(eqx.Module):
    attn: Attention
    up: jax.Array
    down: jax.Array
    norms: tuple

    def __init__(self, cfg, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.attn = Attention(cfg, k1)
        self.up = uniform(k2, (cfg.width, cfg.hidden))
        self.down = uniform(k3, (cfg.hidden, cfg.width))
        self.norms = (Norm(cfg.width), Norm(cfg.width))

    def __call__(self, x):
        x = x + self.attn(self.norms[0](x))
        return x + jax.nn.gelu(self.norms[1](x) @ self.up) @ self.down


class ProteinModel(eqx.Module):
    embed: jax.Array
    blocks: list
    unembed: jax.Array

    def __init__(self, cfg, key):
        ke, ku, *ks = jax.random.split(key, cfg.depth + 2)
        self.embed = uniform(ke, (cfg.residues, cfg.width))
        self.blocks = [Block(cfg, k) for k in ks]
        self.unembed = uniform(ku, (cfg.residues, cfg.width))

    def __call__(self, tokens):
        x = self.embed[tokens]
        for block in self.blocks:
            x = eqx.filter_checkpoint(block)(x)
        return x @ self.unembed.T


def layout(mesh, tree):
    def one(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = next((s for rule, s in RULES if re.search(rule, name)), P())
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(one, tree)


def make_fixed(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(8), ("fsdp",))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(4e-4, weight_decay=0.01))
    shapes = eqx.filter_eval_shape(ProteinModel, cfg, jax.random.key(0))
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    state = jax.eval_shape(tx.init, params)
    params, state = layout(mesh, params), layout(mesh, state)
    rows = NamedSharding(mesh, P("fsdp", None))

    def loss_fn(params, tokens, targets, mask):
        logits = eqx.combine(params, static)(tokens)
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.sum(nll * mask) / jnp.maximum(mask.sum(), 1.0)

    def step(params, state, tokens, targets, mask):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets, mask)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    ids = jax.ShapeDtypeStruct((cfg.batch, cfg.length), jnp.int32, sharding=rows)
    mask = jax.ShapeDtypeStruct((cfg.batch, cfg.length), jnp.float32, sharding=rows)
    outs = jax.tree.map(lambda s: s.sharding, (params, state)) + (NamedSharding(mesh, P()),)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=outs)
    return fn, (params, state, ids, ids, mask)
