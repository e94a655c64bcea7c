# mypy: ignore-errors
"""Clean. Tensor parallelism in the usual way: residual stream split over the batch only, heads and hidden units over the model axis."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Hyper:
    layers: int = 6
    width: int = 2048
    ff: int = 8192
    heads: int = 16
    vocab: int = 32768
    batch: int = 8
    seq: int = 512


def column_parallel(mesh, *shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(None, None, "model")))


def row_parallel(mesh, *shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(None, "model", None)))


def shapes(mesh, h):
    return {
        "qkv": column_parallel(mesh, h.layers, h.width, 3 * h.width),
        "proj": row_parallel(mesh, h.layers, h.width, h.width),
        "up": column_parallel(mesh, h.layers, h.width, h.ff),
        "down": row_parallel(mesh, h.layers, h.ff, h.width),
    }


def layernorm(x):
    x = x.astype(jnp.float32)
    x = x - x.mean(-1, keepdims=True)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)).astype(jnp.bfloat16)


def transformer(blocks, x, h, mesh):
    residual = NamedSharding(mesh, P("data", None, None))
    inner = NamedSharding(mesh, P("data", None, "model"))

    def block(x, w):
        b, s, d = x.shape
        w = {k: v.astype(jnp.bfloat16) for k, v in w.items()}
        qkv = jax.lax.with_sharding_constraint(layernorm(x) @ w["qkv"], inner)
        q, k, v = jnp.split(qkv.reshape(b, s, h.heads, 3 * d // h.heads), 3, axis=-1)
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d)
        x = jax.lax.with_sharding_constraint(x + a @ w["proj"], residual)
        m = jax.lax.with_sharding_constraint(jax.nn.gelu(layernorm(x) @ w["up"]), inner)
        return jax.lax.with_sharding_constraint(x + m @ w["down"], residual), None

    return jax.lax.scan(jax.checkpoint(block), x, blocks)[0]


def make_clean(devices):
    h = Hyper()
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "model"))
    blocks = shapes(mesh, h)
    table = jax.ShapeDtypeStruct((h.vocab, h.width), jnp.float32, sharding=NamedSharding(mesh, P("model", None)))
    params = {"blocks": blocks, "table": table}
    tokens = jax.ShapeDtypeStruct((h.batch, h.seq), jnp.int32, sharding=NamedSharding(mesh, P("data", None)))

    def loss_fn(params, tokens):
        x = params["table"].astype(jnp.bfloat16)[tokens]
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", None, None)))
        x = layernorm(transformer(params["blocks"], x, h, mesh))
        logits = (x[:, :-1] @ params["table"].astype(jnp.bfloat16).T).astype(jnp.float32)
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data", None, "model")))
        onehot = jax.nn.one_hot(tokens[:, 1:], h.vocab, dtype=jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * onehot, -1))

    def sgd(params, tokens):
        loss, g = jax.value_and_grad(loss_fn)(params, tokens)
        return jax.tree.map(lambda p, d: p - 0.1 * d, params, g), loss

    out = (jax.tree.map(lambda s: s.sharding, params), NamedSharding(mesh, P()))
    return jax.jit(sgd, donate_argnums=0, out_shardings=out), (params, tokens)
