# mypy: ignore-errors
"""Fault: replicated. The value half of the beam-search cache has no "model" axis in the table of
specs, so every device of a model group holds all heads of it, four times what the keys take."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

LAYERS, BEAMS, MAX_LEN, HEADS, HEAD_DIM = 4, 16, 1024, 16, 64
WIDTH = HEADS * HEAD_DIM

SPECS = {
    "wq": P(None, None, "model", None),
    "wk": P(None, None, "model", None),
    "wv": P(None, None, "model", None),
    "wo": P(None, "model", None, None),
    "cache_k": P(None, "data", None, "model", None),
    "cache_v": P(None, "data", None, None, None),  # FAULT
    "token": P("data", None),
    "pos": P(),
}

SHAPES = {
    "wq": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wk": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wv": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wo": (LAYERS, HEADS, HEAD_DIM, WIDTH),
    "cache_k": (LAYERS, BEAMS, MAX_LEN, HEADS, HEAD_DIM),
    "cache_v": (LAYERS, BEAMS, MAX_LEN, HEADS, HEAD_DIM),
    "token": (BEAMS, WIDTH),
}


def attend(q, k, v, pos):
    scores = jnp.einsum("bhd,blhd->bhl", q, k) / math.sqrt(HEAD_DIM)
    scores = jnp.where(jnp.arange(MAX_LEN) <= pos, scores, -1e30)
    return jnp.einsum("bhl,blhd->bhd", jax.nn.softmax(scores, axis=-1), v)


def decode_step(weights, cache, token, pos):
    """One token for every beam; returns the hidden state and the cache with the token added."""
    keys, values = cache["cache_k"], cache["cache_v"]
    h = token
    for i in range(LAYERS):
        q = jnp.einsum("bw,whd->bhd", h, weights["wq"][i])
        k = jnp.einsum("bw,whd->bhd", h, weights["wk"][i])
        v = jnp.einsum("bw,whd->bhd", h, weights["wv"][i])
        keys = jax.lax.dynamic_update_slice(keys, k[None, :, None], (i, 0, pos, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v[None, :, None], (i, 0, pos, 0, 0))
        h = h + jnp.einsum("bhd,hdw->bw", attend(q, keys[i], values[i], pos), weights["wo"][i])
    return h, {"cache_k": keys, "cache_v": values}


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    sh = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}

    def abstract(name):
        return jax.ShapeDtypeStruct(SHAPES[name], jnp.float32, sharding=sh[name])

    weights = {n: abstract(n) for n in ("wq", "wk", "wv", "wo")}
    cache = {n: abstract(n) for n in ("cache_k", "cache_v")}
    pos = jax.ShapeDtypeStruct((), jnp.int32, sharding=sh["pos"])
    step = jax.jit(
        decode_step,
        donate_argnums=(1,),
        out_shardings=(sh["token"], {n: sh[n] for n in cache}),
    )
    return step, (weights, cache, abstract("token"), pos)
