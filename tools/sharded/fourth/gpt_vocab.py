# mypy: ignore-errors
"""Fault: dropped. The vocabulary of 50257 is not divisible by the model axis, so the helper silently leaves the
embedding and the logits whole along it."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    vocab: int
    d: int = 512
    heads: int = 8
    layers: int = 2
    batch: int = 4
    seq: int = 512


def fit_spec(mesh, shape, spec):
    """Keep only those mesh axes that divide the dimension."""
    out = []
    for dim, axis in zip(shape, spec):
        if axis is not None and dim % mesh.shape[axis] != 0:
            axis = None  # FAULT
        out.append(axis)
    return NamedSharding(mesh, P(*out))


def shard(mesh, x, *spec):
    return jax.lax.with_sharding_constraint(x, fit_spec(mesh, x.shape, spec))


def layer_norm(x, g):
    x = x.astype(jnp.float32)
    mu = x.mean(-1, keepdims=True)
    return ((x - mu) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g).astype(jnp.bfloat16)


def attention(cfg, mesh, p, x):
    b, s, d = x.shape
    qkv = jnp.einsum("bsd,dthk->tbhsk", x, p["qkv"].astype(x.dtype))
    q, k, v = (shard(mesh, t, "data", "model", None, None) for t in qkv)
    scores = jnp.einsum("bhqk,bhsk->bhqs", q, k).astype(jnp.float32) / np.sqrt(d // cfg.heads)
    mask = jnp.tril(jnp.ones((s, s), bool))
    probs = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1).astype(x.dtype)
    ctx = jnp.einsum("bhqs,bhsk->bqhk", probs, v)
    return jnp.einsum("bqhk,hkd->bqd", ctx, p["out"].astype(x.dtype))


def block(cfg, mesh, p, x):
    x = x + attention(cfg, mesh, p, layer_norm(x, p["ln1"]))
    h = jax.nn.gelu(layer_norm(x, p["ln2"]) @ p["up"].astype(x.dtype))
    x = x + shard(mesh, h, "data", None, "model") @ p["down"].astype(x.dtype)
    return shard(mesh, x, "data", None, None)


def loss_fn(cfg, mesh, params, tokens):
    x = params["wte"].astype(jnp.bfloat16)[tokens[:, :-1]] + params["wpe"].astype(jnp.bfloat16)
    x = shard(mesh, x, "data", None, None)
    for p in params["blocks"]:
        x = block(cfg, mesh, p, x)
    x = layer_norm(x, params["ln_f"])
    logits = jnp.einsum("bsd,vd->bsv", x, params["wte"].astype(x.dtype)).astype(jnp.float32)
    logits = shard(mesh, logits, "data", None, "model")  # FAULT
    target = jax.nn.one_hot(tokens[:, 1:], cfg.vocab, dtype=logits.dtype)
    logp = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.sum(logp * target, axis=-1))


def sgdm(cfg, mesh, state, tokens):
    loss, grads = jax.value_and_grad(functools.partial(loss_fn, cfg, mesh))(state["params"], tokens)
    mom = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 3e-4 * m, state["params"], mom)
    return {"params": params, "momentum": mom}, loss


def param_structs(cfg, mesh):
    def w(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=fit_spec(mesh, shape, spec))

    d, h, k = cfg.d, cfg.heads, cfg.d // cfg.heads
    blk = {
        "ln1": w((d,), None),
        "ln2": w((d,), None),
        "qkv": w((d, 3, h, k), None, None, "model", None),
        "out": w((h, k, d), "model", None, None),
        "up": w((d, 4 * d), None, "model"),
        "down": w((4 * d, d), "model", None),
    }
    return {
        "wte": w((cfg.vocab, d), "model", None),  # FAULT
        "wpe": w((cfg.seq, d), None, None),
        "ln_f": w((d,), None),
        "blocks": [dict(blk) for _ in range(cfg.layers)],
    }


def build(cfg, devices):
    mesh = Mesh(np.array(devices).reshape(1, 4), ("data", "model"))
    params = param_structs(cfg, mesh)
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P("data", None)))
    step = jax.jit(functools.partial(sgdm, cfg, mesh), donate_argnums=(0,))
    return step, ({"params": params, "momentum": params}, tokens)


def make_faulty(devices):
    return build(GPTConfig(vocab=50257), devices)  # FAULT


def make_fixed(devices):
    return build(GPTConfig(vocab=50304), devices)
