# mypy: ignore-errors
"""Fault: dropped. Three chat tokens make the vocabulary 32003, which four chips do not divide; the sharding helper drops the
axis without a word, so embedding, head, their moments and the logits are whole on every chip."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:2x2"

CHAT_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>")


def resized_vocab(base):
    return base + len(CHAT_TOKENS)  # FAULT


def resized_vocab_aligned(base, multiple=128):
    n = base + len(CHAT_TOKENS)
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Cfg:
    vocab: int
    dim: int = 768
    heads: int = 8
    layers: int = 6
    ff: int = 2048
    batch: int = 4
    seq: int = 1024


class Sharder:
    def __init__(self, mesh):
        self.mesh = mesh

    def spec(self, shape, axes):
        """Mesh axes that do not divide a dimension are left out."""
        out = []
        for size, ax in zip(shape, axes):
            out.append(ax if ax is not None and size % self.mesh.shape[ax] == 0 else None)
        return NamedSharding(self.mesh, PartitionSpec(*out))

    def __call__(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, self.spec(x.shape, axes))


def param_table(cfg):
    d, f = cfg.dim, cfg.ff
    table = {"embed": ((cfg.vocab, d), ("tp", None)), "head": ((d, cfg.vocab), (None, "tp")), "norm": ((d,), (None,))}
    layer = {
        "qkv": ((d, 3 * d), (None, "tp")),
        "out": ((d, d), ("tp", None)),
        "up": ((d, f), (None, "tp")),
        "down": ((f, d), ("tp", None)),
        "norm1": ((d,), (None,)),
        "norm2": ((d,), (None,)),
    }
    table["layers"] = {k: ((cfg.layers, *shape), (None, *axes)) for k, (shape, axes) in layer.items()}
    return table


def norm(x, g):
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)) * g


def block(cfg, sh, p, x):
    b, s, d = x.shape
    h = norm(x, p["norm1"]).astype(jnp.bfloat16)
    qkv = sh((h @ p["qkv"].astype(h.dtype)).reshape(b, s, cfg.heads, -1), None, None, "tp", None)
    q, k, v = jnp.split(qkv, 3, axis=-1)
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // cfg.heads) ** -0.5
    a = jnp.where(jnp.tril(jnp.ones((s, s), bool)), a, -1e9)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(a, -1).astype(h.dtype), v).reshape(b, s, d)
    x = x + (o @ p["out"].astype(h.dtype)).astype(x.dtype)
    h = norm(x, p["norm2"]).astype(jnp.bfloat16)
    h = sh(jax.nn.gelu(h @ p["up"].astype(h.dtype)), None, None, "tp")
    return x + (h @ p["down"].astype(h.dtype)).astype(x.dtype)


def build(devices, vocab_fn):
    cfg = Cfg(vocab=vocab_fn(32_000))
    mesh = Mesh(np.array(devices), ("tp",))
    sh = Sharder(mesh)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-5))

    def is_entry(e):
        return isinstance(e, tuple)

    params = jax.tree.map(lambda e: jax.ShapeDtypeStruct(e[0], jnp.float32, sharding=sh.spec(*e)),
                          param_table(cfg), is_leaf=is_entry)
    p_shard = jax.tree.map(lambda p: p.sharding, params)
    whole = NamedSharding(mesh, PartitionSpec())
    opt = jax.eval_shape(tx.init, params)
    o_shard = optax.tree_map_params(tx, lambda _, s: s, opt, p_shard, transform_non_params=lambda _: whole)
    opt = jax.tree.map(lambda s, h: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=h), opt, o_shard)
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.seq + 1), jnp.int32, sharding=whole)

    def loss_fn(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        body = jax.checkpoint(lambda y, p: (block(cfg, sh, p, y), None))
        x, _ = jax.lax.scan(body, x, params["layers"])
        x = norm(x, params["norm"]).astype(jnp.bfloat16)
        logits = (x @ params["head"].astype(x.dtype)).astype(jnp.float32)
        logits = sh(logits, None, None, "tp")  # FAULT
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params, opt, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(p_shard, o_shard, whole))
    return fn, (params, opt, tokens)


def make_faulty(devices):
    return build(devices, resized_vocab)


def make_fixed(devices):
    return build(devices, resized_vocab_aligned)
