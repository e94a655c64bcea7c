# mypy: ignore-errors
"""Fault: donated. The spec of the returned cache of the target model leaves out the heads, so its buffers
are not those of the donated cache, which cannot be reused: both caches are alive."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class LM:
    layers: int
    width: int
    heads: int
    vocab: int = 16384

    @property
    def head(self):
        return self.width // self.heads


TARGET_LM = LM(layers=4, width=1024, heads=8)
DRAFT_LM = LM(layers=1, width=512, heads=4)
BATCH, LENGTH, GUESSES = 16, 2048, 4
WEIGHTS = {"embed": P(None, "model"), "qkv": P(None, None, "model"), "out": P(None, "model", None),
           "up": P(None, None, "model"), "down": P(None, "model", None)}
CACHE = P(None, "data", None, "model", None)  # layer, batch, position, head, dim
CACHE_OUT = P(None, "data")  # FAULT


def weights(lm, mesh):
    d, n = lm.width, lm.layers
    shapes = {"embed": (lm.vocab, d), "qkv": (n, d, 3 * d), "out": (n, d, d), "up": (n, d, 4 * d), "down": (n, 4 * d, d)}
    return {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, WEIGHTS[k])) for k, s in shapes.items()}


def cache(lm, mesh):
    kv = jax.ShapeDtypeStruct(
        (lm.layers, BATCH, LENGTH, lm.heads, lm.head), jnp.bfloat16, sharding=NamedSharding(mesh, CACHE)
    )
    return {"k": kv, "v": kv}


def norm(x):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def forward(lm, w, kv, ids, start):
    """Feed ids (batch, t) at positions start.. and return logits and the grown cache."""
    x = w["embed"][ids]
    b, t = ids.shape
    seen = jnp.arange(LENGTH)[None, :] <= (start + jnp.arange(t))[:, None]

    def layer(carry, scanned):
        x, ks, vs = carry
        i, qkv, out, up, down = scanned
        q, k, v = jnp.split((norm(x) @ qkv).reshape(b, t, lm.heads, 3 * lm.head), 3, -1)
        ks = lax.dynamic_update_slice(ks, k[None], (i, 0, start, 0, 0))
        vs = lax.dynamic_update_slice(vs, v[None], (i, 0, start, 0, 0))
        s = jnp.einsum("bthd,bshd->bhts", q, ks[i]).astype(jnp.float32) / np.sqrt(lm.head)
        p = jax.nn.softmax(jnp.where(seen, s, -1e30)).astype(x.dtype)
        x = x + jnp.einsum("bhts,bshd->bthd", p, vs[i]).reshape(b, t, -1) @ out
        return (x + jax.nn.gelu(norm(x) @ up) @ down, ks, vs), None

    xs = (jnp.arange(lm.layers), w["qkv"], w["out"], w["up"], w["down"])
    (x, ks, vs), _ = lax.scan(layer, (x, kv["k"], kv["v"]), xs)
    return norm(x) @ w["embed"].T, {"k": ks, "v": vs}


def speculate(target_w, draft_w, target_kv, draft_kv, last, start):
    """GUESSES tokens from the draft model, verified by the target model in one pass."""

    def guess(carry, i):
        tok, kv = carry
        logits, kv = forward(DRAFT_LM, draft_w, kv, tok[:, None], start + i)
        tok = jnp.argmax(logits[:, 0], -1).astype(jnp.int32)
        return (tok, kv), tok

    (_, draft_kv), guesses = lax.scan(guess, (last, draft_kv), jnp.arange(GUESSES))
    guesses = guesses.T
    ids = jnp.concatenate([last[:, None], guesses], 1)
    logits, target_kv = forward(TARGET_LM, target_w, target_kv, ids, start)
    chosen = jnp.argmax(logits, -1).astype(jnp.int32)
    agree = jnp.cumprod(chosen[:, :-1] == guesses, axis=1)
    accepted = jnp.min(jnp.sum(agree, 1))  # the batch moves on together
    last = lax.dynamic_index_in_dim(chosen, accepted, 1, keepdims=False)
    return chosen, accepted, last, target_kv, draft_kv


def build(devices, cache_out):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    to = partial(NamedSharding, mesh)
    rows = to(P("data"))
    step = jax.jit(
        speculate,
        donate_argnums=(2, 3),
        out_shardings=(rows, to(P()), rows, to(cache_out), to(CACHE)),  # FAULT
    )
    last = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows)
    start = jax.ShapeDtypeStruct((), jnp.int32, sharding=to(P()))
    args = (weights(TARGET_LM, mesh), weights(DRAFT_LM, mesh), cache(TARGET_LM, mesh), cache(DRAFT_LM, mesh), last, start)
    return step, args


def make_faulty(devices):
    return build(devices, CACHE_OUT)


def make_fixed(devices):
    return build(devices, CACHE)
