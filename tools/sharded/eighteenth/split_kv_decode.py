# mypy: ignore-errors
"""Clean. Decoding with two key/value heads on a model axis of four: the cache is split over its context
instead (partial softmax, merged with pmax / psum) and updated in place; weights are whole along "data"
by choice, each row of the grid being a serving replica.

Everything runs inside one shard_map; the context block that owns the current position writes the token.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

DEPTH, D, Q_HEADS, KV_HEADS, HEAD, FF, VOCAB = 12, 1024, 16, 2, 64, 4096, 32_768
SEQUENCES, CONTEXT = 64, 4096
DATA, MODEL = "data", "model"


class Cache(NamedTuple):
    k: jax.Array  # depth, sequences, context, kv heads, head
    v: jax.Array


CACHE_SPEC = Cache(P(None, DATA, MODEL), P(None, DATA, MODEL))

WEIGHTS = {
    "embed": ((VOCAB, D), P(None, MODEL)),
    "wq": ((DEPTH, D, Q_HEADS * HEAD), P(None, None, MODEL)),
    "wkv": ((DEPTH, D, 2 * KV_HEADS * HEAD), P(None, MODEL, None)),
    "wo": ((DEPTH, Q_HEADS * HEAD, D), P(None, MODEL, None)),
    "w1": ((DEPTH, D, FF), P(None, None, MODEL)),
    "w3": ((DEPTH, D, FF), P(None, None, MODEL)),
    "w2": ((DEPTH, FF, D), P(None, MODEL, None)),
    "norms": ((DEPTH, 2, D), P()),
    "final": ((D,), P()),
    "unembed": ((D, VOCAB), P(None, MODEL)),
}
LAYER_KEYS = ("wq", "wkv", "wo", "w1", "w3", "w2", "norms")


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def my_part(x, axis):
    n = x.shape[axis] // lax.axis_size(MODEL)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(MODEL) * n, n, axis)


def write_token(cache, token, position):
    """Put (sequences, kv, head) at `position` of each sequence where this block owns it."""
    block = cache.shape[1]
    local = position - lax.axis_index(MODEL) * block
    mine = (local >= 0) & (local < block)
    at = jnp.clip(local, 0, block - 1)
    rows = jnp.arange(cache.shape[0])
    kept = cache[rows, at]
    return cache.at[rows, at].set(jnp.where(mine[:, None, None], token, kept))


def split_attention(q, k, v, position):
    """Each chip attends to its stretch of the context; merge by log-sum-exp over the model axis."""
    b, block = q.shape[0], k.shape[1]
    q = q.reshape(b, KV_HEADS, Q_HEADS // KV_HEADS, HEAD)
    logits = jnp.einsum("bkgd,bskd->bkgs", q, k, preferred_element_type=jnp.float32) * HEAD**-0.5
    where = lax.axis_index(MODEL) * block + jnp.arange(block)
    logits = jnp.where((where[None] <= position[:, None])[:, None, None], logits, -1e30)
    top = lax.pmax(logits.max(-1, keepdims=True), MODEL)
    p = jnp.exp(logits - top)
    denom = lax.psum(p.sum(-1, keepdims=True), MODEL)
    part = jnp.einsum("bkgs,bskd->bkgd", p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (lax.psum(part, MODEL) / denom).astype(q.dtype).reshape(b, Q_HEADS * HEAD)


def decode_layer(position, carry, xs):
    h, cache = carry
    i, w = xs
    y = rms(h, w["norms"][0])
    q = lax.all_gather(y @ w["wq"], MODEL, axis=1, tiled=True)  # one token: small
    kv = lax.psum(my_part(y, 1) @ w["wkv"], MODEL).reshape(-1, 2, KV_HEADS, HEAD)
    k = write_token(cache.k[i], kv[:, 0], position)
    v = write_token(cache.v[i], kv[:, 1], position)
    cache = Cache(cache.k.at[i].set(k), cache.v.at[i].set(v))
    att = split_attention(q, k, v, position)
    h = h + lax.psum(my_part(att, 1) @ w["wo"], MODEL)
    y = rms(h, w["norms"][1])
    h = h + lax.psum((jax.nn.silu(y @ w["w1"]) * (y @ w["w3"])) @ w["w2"], MODEL)
    return (h, cache), None


def greedy(logits):
    """argmax over a vocabulary that is split over the model axis."""
    base = lax.axis_index(MODEL) * logits.shape[-1]
    best, arg = logits.max(-1), jnp.argmax(logits, -1) + base
    bests, args = (lax.all_gather(z, MODEL) for z in (best, arg))
    return jnp.take_along_axis(args, jnp.argmax(bests, 0)[None], axis=0)[0].astype(jnp.int32)


def decode_step(weights, cache, tokens, position):
    h = lax.all_gather(weights["embed"][tokens], MODEL, axis=1, tiled=True)
    layers = {k: weights[k] for k in LAYER_KEYS}
    body = functools.partial(decode_layer, position)
    (h, cache), _ = lax.scan(body, (h, cache), (jnp.arange(DEPTH), layers))
    logits = (rms(h, weights["final"]) @ weights["unembed"]).astype(jnp.float32)
    return cache, greedy(logits), position + 1


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), (DATA, MODEL))
    specs = {name: spec for name, (_, spec) in WEIGHTS.items()}
    step = jax.shard_map(
        decode_step,
        mesh=mesh,
        in_specs=(specs, CACHE_SPEC, P(DATA), P(DATA)),
        out_specs=(CACHE_SPEC, P(DATA), P(DATA)),
        check_vma=False,
    )

    def put(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = {name: put(shape, spec) for name, (shape, spec) in WEIGHTS.items()}
    shape = (DEPTH, SEQUENCES, CONTEXT, KV_HEADS, HEAD)
    cache = Cache(*(put(shape, spec) for spec in CACHE_SPEC))
    per_sequence = put((SEQUENCES,), P(DATA), jnp.int32)
    return jax.jit(step, donate_argnums=(1, 2, 3)), (weights, cache, per_sequence, per_sequence)
