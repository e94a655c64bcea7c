# mypy: ignore-errors
"""Fault: dropped. The vocabulary of 50257 does not divide by the tensor axis, so the helper silently drops the axis for
the embedding and for the logits: float32 logits, their softmax and their gradient are whole on every device of the group."""
from __future__ import annotations

from dataclasses import dataclass, replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class GPTConfig:
    vocab_size: int = 50257  # FAULT
    block_size: int = 256
    n_layer: int = 2
    n_head: int = 12
    n_embd: int = 768
    batch: int = 8
    mesh: Mesh | None = None


def fit_spec(mesh, shape, axes):
    """Keep an axis only where it divides the dimension."""
    kept = [a if a is not None and n % mesh.shape[a] == 0 else None for n, a in zip(shape, axes)]
    return NamedSharding(mesh, P(*kept))


def shard(cfg, x, *axes):
    return jax.lax.with_sharding_constraint(x, fit_spec(cfg.mesh, x.shape, axes))


class Block(nn.Module):
    cfg: GPTConfig

    @nn.compact
    def __call__(self, x):
        c = self.cfg
        b, t, d = x.shape
        h = nn.LayerNorm(name="ln_1")(x)
        qkv = nn.Dense(3 * d, name="c_attn")(h).reshape(b, t, 3, c.n_head, d // c.n_head)
        q, k, v = (shard(c, qkv[:, :, i], "data", None, "tp", None) for i in range(3))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        x = x + nn.Dense(d, name="c_proj")(y)
        h = nn.LayerNorm(name="ln_2")(x)
        h = shard(c, nn.gelu(nn.Dense(4 * d, name="c_fc")(h)), "data", None, "tp")
        return shard(c, x + nn.Dense(d, name="mlp_proj")(h), "data", None, None)


class GPT(nn.Module):
    cfg: GPTConfig

    @nn.compact
    def __call__(self, tokens):
        c = self.cfg
        wte = nn.Embed(c.vocab_size, c.n_embd, name="wte")
        wpe = self.param("wpe", nn.initializers.normal(0.01), (c.block_size, c.n_embd))
        x = shard(c, wte(tokens) + wpe, "data", None, None)
        for i in range(c.n_layer):
            x = nn.remat(Block)(c, name=f"h_{i}")(x)
        x = nn.LayerNorm(name="ln_f")(x)
        return shard(c, wte.attend(x), "data", None, "tp")  # FAULT


def axes_for(path, leaf):
    name = jax.tree_util.keystr(path)
    if "embedding" in name:
        return ("tp", None)
    if leaf.ndim == 2 and ("c_attn" in name or "c_fc" in name):
        return (None, "tp")
    if leaf.ndim == 2 and "proj" in name:
        return ("tp", None)
    return (None,) * leaf.ndim


def make(devices, cfg):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "tp"))
    cfg = replace(cfg, mesh=mesh)
    model, tx = GPT(cfg), optax.sgd(1e-3, momentum=0.9)
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.block_size), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    def init(rng, toks):
        params = model.init(rng, toks)["params"]
        return params, tx.init(params)

    state = jax.eval_shape(init, jax.random.key(0), tokens)
    state = jax.tree_util.tree_map_with_path(
        lambda p, s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=fit_spec(mesh, s.shape, axes_for(p, s))), state
    )

    def step(state, x, y):
        params, opt = state

        def loss_fn(p):
            logits = model.apply({"params": p}, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    out = (jax.tree.map(lambda s: s.sharding, state), NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=0, out_shardings=out), (state, tokens, tokens)


def make_faulty(devices):
    return make(devices, GPTConfig())


def make_fixed(devices):
    return make(devices, GPTConfig(vocab_size=50304))
