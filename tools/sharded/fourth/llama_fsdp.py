# mypy: ignore-errors
"""Fault: gathered. The loss casts and gathers all stacked layer weights before the scan, so the whole model is held
on each device through the forward and the backward pass."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


class Hyper(NamedTuple):
    dim: int = 1024
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 2816
    layers: int = 8
    vocab: int = 8192
    batch: int = 4
    seq: int = 512


class Layer(NamedTuple):
    attn_norm: jax.Array
    wq: jax.Array
    wkv: jax.Array
    wo: jax.Array
    ffn_norm: jax.Array
    gate: jax.Array
    up: jax.Array
    down: jax.Array


class Model(NamedTuple):
    embed: jax.Array
    layers: Layer
    final_norm: jax.Array


def rms(x, w):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-5)).astype(x.dtype) * w


def rope(x):
    s, half = x.shape[1], x.shape[-1] // 2
    ang = jnp.arange(s)[:, None] / (10000.0 ** (jnp.arange(half) / half))[None]
    cos, sin = jnp.cos(ang)[None, :, None].astype(x.dtype), jnp.sin(ang)[None, :, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def layer_forward(hp, x, p):
    b, s, d = x.shape
    hd = d // hp.heads
    h = rms(x, p.attn_norm)
    q = rope((h @ p.wq).reshape(b, s, hp.heads, hd))
    k, v = jnp.split((h @ p.wkv).reshape(b, s, 2 * hp.kv_heads, hd), 2, axis=2)
    out = jax.nn.dot_product_attention(q, rope(k), v, is_causal=True)
    x = x + out.reshape(b, s, d) @ p.wo
    h = rms(x, p.ffn_norm)
    return x + (jax.nn.silu(h @ p.gate) * (h @ p.up)) @ p.down


def cross_entropy(x, embed, targets):
    logits = (x @ embed.T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)


def structs(hp, mesh):
    def w(*shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    d, n, hd = hp.dim, hp.layers, hp.dim // hp.heads
    fsdp, rep = P(None, "fsdp", None), P()
    layers = Layer(
        attn_norm=w(n, d, spec=rep), wq=w(n, d, d, spec=fsdp), wkv=w(n, d, 2 * hp.kv_heads * hd, spec=fsdp),
        wo=w(n, d, d, spec=fsdp), ffn_norm=w(n, d, spec=rep), gate=w(n, d, hp.ffn, spec=fsdp),
        up=w(n, d, hp.ffn, spec=fsdp), down=w(n, hp.ffn, d, spec=fsdp),
    )
    model = Model(embed=w(hp.vocab, d, spec=P("fsdp", None)), layers=layers, final_norm=w(d, spec=rep))
    tokens = jax.ShapeDtypeStruct((hp.batch, hp.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    return model, tokens


def train_step(loss_fn):
    def step(model, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(model, tokens)
        return jax.tree.map(lambda p, g: p - 1e-4 * g, model, grads), loss

    return jax.jit(step, donate_argnums=(0,))


def make_faulty(devices):
    hp = Hyper()
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())

    def loss_fn(model, tokens):
        model = jax.tree.map(lambda w: w.astype(jnp.bfloat16), model)
        model = jax.lax.with_sharding_constraint(model, whole)  # FAULT
        x = model.embed[tokens[:, :-1]]
        body = jax.checkpoint(lambda x, p: (layer_forward(hp, x, p), None))
        x, _ = jax.lax.scan(body, x, model.layers)
        return cross_entropy(rms(x, model.final_norm), model.embed, tokens[:, 1:])

    return train_step(loss_fn), structs(hp, mesh)


def make_fixed(devices):
    hp = Hyper()
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("fsdp"))

    def gathered(tree):
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole), tree)

    def loss_fn(model, tokens):
        embed = gathered(model.embed)
        x = jax.lax.with_sharding_constraint(embed[tokens[:, :-1]], rows)
        body = jax.checkpoint(lambda x, p: (layer_forward(hp, x, gathered(p)), None))
        x, _ = jax.lax.scan(body, x, model.layers)
        return cross_entropy(rms(x, gathered(model.final_norm)), embed, tokens[:, 1:])

    return train_step(loss_fn), structs(hp, mesh)
