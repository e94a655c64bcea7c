# mypy: ignore-errors
"""Clean. Verification of draft tokens with tensor parallelism: weights and cache are split by head, the cache is donated
and returned as it came, and the few activations of the draft are whole."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, HEAD_DIM, FF, VOCAB = 8, 1024, 16, 128, 4096, 32_000
SLOTS, CONTEXT, DRAFT = 8, 2048, 4

WEIGHTS = {
    "embed": ((VOCAB, DIM), P(None, "tp")),
    "unembed": ((DIM, VOCAB), P(None, "tp")),
    "wqkv": ((LAYERS, 3, DIM, HEADS, HEAD_DIM), P(None, None, None, "tp", None)),
    "wo": ((LAYERS, HEADS, HEAD_DIM, DIM), P(None, "tp", None, None)),
    "gate": ((LAYERS, DIM, FF), P(None, None, "tp")),
    "up": ((LAYERS, DIM, FF), P(None, None, "tp")),
    "down": ((LAYERS, FF, DIM), P(None, "tp", None)),
}
CACHE_SPEC = P(None, None, None, "tp", None)


def rms(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def append(cache, new, starts):
    """Writes each slot's new keys or values at that slot's own position."""
    return jax.vmap(lambda c, n, s: jax.lax.dynamic_update_slice(c, n, (s, 0, 0)))(cache, new, starts)


def verify(weights, cache, drafts, starts):
    """Runs the draft tokens of all slots and counts how many of them the model agrees with."""
    x = weights["embed"][drafts]
    positions = starts[:, None] + jnp.arange(DRAFT)
    visible = jnp.arange(CONTEXT) <= positions[:, None, :, None]

    def layer(carry, scanned):
        x, cache = carry
        w, i = scanned
        q, k, v = jnp.einsum("btd,cdhk->cbthk", rms(x), w["wqkv"])
        keys, values = append(cache["k"][i], k, starts), append(cache["v"][i], v, starts)
        s = jnp.einsum("bqhk,bthk->bhqt", q, keys).astype(jnp.float32) * HEAD_DIM**-0.5
        a = jax.nn.softmax(jnp.where(visible, s, -1e30)).astype(x.dtype)
        mixed = jnp.einsum("bhqt,bthk->bqhk", a, values)
        x = x + jnp.einsum("bqhk,hkd->bqd", mixed, w["wo"])
        y = rms(x)
        x = x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
        cache = {"k": cache["k"].at[i].set(keys), "v": cache["v"].at[i].set(values)}
        return (x, cache), None

    stacked = {k: weights[k] for k in ("wqkv", "wo", "gate", "up", "down")}
    (x, cache), _ = jax.lax.scan(layer, (x, cache), (stacked, jnp.arange(LAYERS)))
    best = jnp.argmax(rms(x) @ weights["unembed"], axis=-1).astype(jnp.int32)
    agree = jnp.cumprod(best[:, :-1] == drafts[:, 1:], axis=1)
    return cache, best, agree.sum(axis=1)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("tp",))

    def struct(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = {name: struct(shape, spec) for name, (shape, spec) in WEIGHTS.items()}
    kv = struct((LAYERS, SLOTS, CONTEXT, HEADS, HEAD_DIM), CACHE_SPEC)
    cache = {"k": kv, "v": kv}
    drafts = struct((SLOTS, DRAFT), P(), jnp.int32)
    starts = struct((SLOTS,), P(), jnp.int32)
    whole = NamedSharding(mesh, P())
    fn = jax.jit(verify, donate_argnums=1, out_shardings=({"k": kv.sharding, "v": kv.sharding}, whole, whole))
    return fn, (weights, cache, drafts, starts)
