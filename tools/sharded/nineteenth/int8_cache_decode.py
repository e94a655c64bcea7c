# mypy: ignore-errors
"""Clean. One decoding step of a multi-query model with an int8 cache: the single key/value head cannot be
split, so the cache is split over its positions; the new entry is written by comparing positions.

Weights are tensor-parallel over one mesh axis and the requests go over the other; key and value projections
are tiny and whole, the scales of the cache have one number per entry.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, WIDTH, HEADS, HEAD, FFN, VOCAB = 12, 1024, 8, 128, 4096, 32_768
REQUESTS, POSITIONS = 512, 4096

WEIGHTS = {
    "embed": ((VOCAB, WIDTH), P("model", None)),
    "q": ((LAYERS, WIDTH, HEADS, HEAD), P(None, None, "model", None)),
    "kv": ((LAYERS, WIDTH, 2, HEAD), P()),  # 6 MiB in all
    "o": ((LAYERS, HEADS, HEAD, WIDTH), P(None, "model", None, None)),
    "up": ((LAYERS, WIDTH, FFN), P(None, None, "model")),
    "down": ((LAYERS, FFN, WIDTH), P(None, "model", None)),
    "scale": ((LAYERS, 2, WIDTH), P()),
}
CACHE = {
    "k": ((LAYERS, REQUESTS, POSITIONS, HEAD), jnp.int8, P(None, "data", "model", None)),
    "v": ((LAYERS, REQUESTS, POSITIONS, HEAD), jnp.int8, P(None, "data", "model", None)),
    "k_scale": ((LAYERS, REQUESTS, POSITIONS), jnp.bfloat16, P(None, "data", "model")),
    "v_scale": ((LAYERS, REQUESTS, POSITIONS), jnp.bfloat16, P(None, "data", "model")),
}


def rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def quantise(x):
    scale = jnp.max(jnp.abs(x), axis=-1).astype(jnp.float32) / 127.0 + 1e-8
    return jnp.round(x / scale[..., None]).astype(jnp.int8), scale.astype(jnp.bfloat16)


def store(cache, layer, name, x, here):
    """Writes x[request, head] at each request's position of one layer."""
    q, scale = quantise(x)
    old = jax.lax.dynamic_index_in_dim(cache[name], layer, keepdims=False)
    old_scale = jax.lax.dynamic_index_in_dim(cache[f"{name}_scale"], layer, keepdims=False)
    new = jnp.where(here[..., None], q[:, None], old)
    new_scale = jnp.where(here, scale[:, None], old_scale)
    cache = cache | {
        name: jax.lax.dynamic_update_index_in_dim(cache[name], new, layer, 0),
        f"{name}_scale": jax.lax.dynamic_update_index_in_dim(cache[f"{name}_scale"], new_scale, layer, 0),
    }
    return cache, new, new_scale


def decode(params, cache, token, length):
    here = jnp.arange(POSITIONS) == length[:, None]
    seen = jnp.arange(POSITIONS) <= length[:, None]
    x = params["embed"][token]

    def layer(i, carry):
        x, cache = carry
        w = {n: jax.lax.dynamic_index_in_dim(params[n], i, keepdims=False) for n in WEIGHTS if n != "embed"}
        y = rms(x, w["scale"][0])
        q = jnp.einsum("bd,dhk->bhk", y, w["q"])
        kv = jnp.einsum("bd,dck->bck", y, w["kv"])
        cache, k, k_scale = store(cache, i, "k", kv[:, 0], here)
        cache, v, v_scale = store(cache, i, "v", kv[:, 1], here)
        scores = jnp.einsum("bhk,bsk->bhs", q, k.astype(q.dtype)).astype(jnp.float32)
        scores = scores * k_scale[:, None].astype(jnp.float32) * HEAD**-0.5
        probs = jax.nn.softmax(jnp.where(seen[:, None], scores, -1e30))
        probs = (probs * v_scale[:, None].astype(jnp.float32)).astype(q.dtype)
        y = jnp.einsum("bhs,bsk->bhk", probs, v.astype(q.dtype))
        x = x + jnp.einsum("bhk,hkd->bd", y, w["o"])
        y = jax.nn.gelu(rms(x, w["scale"][1]) @ w["up"])
        return x + y @ w["down"], cache

    x, cache = jax.lax.fori_loop(0, LAYERS, layer, (x, cache))
    logits = (rms(x, jnp.ones((), x.dtype)) @ params["embed"].T).astype(jnp.float32)
    return cache, jnp.argmax(logits, axis=-1).astype(jnp.int32), length + 1


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def put(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {name: put(shape, jnp.bfloat16, spec) for name, (shape, spec) in WEIGHTS.items()}
    cache = {name: put(*entry) for name, entry in CACHE.items()}
    token = put((REQUESTS,), jnp.int32, P("data"))
    length = put((REQUESTS,), jnp.int32, P("data"))
    out = jax.tree.map(lambda x: x.sharding, (cache, token, length))
    return jax.jit(decode, donate_argnums=(1, 2, 3), out_shardings=out), (params, cache, token, length)
