# mypy: ignore-errors
"""Clean. FSDP under shard_map: each layer's flat shard is gathered inside the checkpointed layer, so the backward pass gathers again."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
LAYERS, D, HEADS, VOCAB, BATCH, SEQ = 12, 1024, 8, 16384, 8, 1024

LAYER = {"qkv": (D, 3 * D), "out": (D, D), "w1": (D, 4 * D), "w2": (4 * D, D)}
SIZES = [math.prod(s) for s in LAYER.values()]


def unflatten(flat):
    parts = jnp.split(flat, np.cumsum(SIZES)[:-1])
    return {k: p.reshape(s) for (k, s), p in zip(LAYER.items(), parts)}


def rms(x):
    return x * lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


@jax.checkpoint
def layer(x, shard):
    w = unflatten(lax.all_gather(shard.astype(jnp.bfloat16), "data", tiled=True))
    q, k, v = jnp.split((rms(x) @ w["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (D // HEADS) ** -0.5
    s = jnp.where(jnp.tril(jnp.ones((SEQ, SEQ), bool)), s, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(x.dtype), v)
    x = x + mixed.reshape(x.shape) @ w["out"]
    return x + jax.nn.gelu(rms(x) @ w["w1"]) @ w["w2"], None


@jax.checkpoint
def chunk_loss(x, targets, unembed):
    """The loss of a slice of the sequence; the table is shared by all slices, and gathered once."""
    logits = (rms(x) @ unembed).astype(jnp.float32)
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]).sum()


def loss(params, tokens, targets):
    table = lax.all_gather(params["table"].astype(jnp.bfloat16), "data", axis=0, tiled=True)
    x, _ = lax.scan(layer, table[tokens], params["layers"])
    cut = lambda t: t.reshape(t.shape[0], 8, -1, *t.shape[2:]).swapaxes(0, 1)
    add = lambda total, xs: (total + chunk_loss(*xs, table.T), None)
    total, _ = lax.scan(add, 0.0, (cut(x), cut(targets)))
    return total / (BATCH * SEQ)


def step(params, mu, nu, tokens, targets):
    value, grads = jax.value_and_grad(loss)(params, tokens, targets)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = jax.tree.map(lambda n, g: 0.95 * n + 0.05 * g * g, nu, grads)
    params = jax.tree.map(lambda p, m, n: p - 3e-4 * m / (jnp.sqrt(n) + 1e-8), params, mu, nu)
    return params, mu, nu, lax.psum(value, "data")


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    specs = {"table": P("data"), "layers": P(None, "data")}
    body = jax.shard_map(step, mesh=mesh, in_specs=(specs, specs, specs, P("data"), P("data")),
                         out_specs=(specs, specs, specs, P()), check_vma=False)
    sds = lambda shape, spec, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    params = {"table": sds((VOCAB, D), specs["table"]), "layers": sds((LAYERS, sum(SIZES)), specs["layers"])}
    tokens = sds((BATCH, SEQ), P("data"), jnp.int32)
    return jax.jit(body, donate_argnums=(0, 1, 2)), (params, params, params, tokens, tokens)
