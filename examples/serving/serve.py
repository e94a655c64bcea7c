"""A server with a paged KV cache, as a job: how many pages do its programs leave room for?

hlomem job examples/serving/serve.py:serve --target cuda-h200 --largest pages --step 64
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, HEADS, HEAD, PAGE = 4, 4, 64, 16
WIDTH = HEADS * HEAD
BUCKETS = ((1, 64), (1, 256), (8, 1))
"""Rows and tokens of each program: two prefills, and a step of decoding."""


def make_cache(pages):
    shape = LAYERS, pages, PAGE, HEADS, HEAD
    return jnp.zeros(shape, jnp.bfloat16), jnp.zeros(shape, jnp.bfloat16)


def forward(weights, keys, values, x, table):
    """Attend to the pages of a table, and write the new keys and values to its first page."""

    def layer(x, given):
        w, k, v = given
        q, new_k, new_v, _ = jnp.split(x @ w, 4, -1)
        heads = q.reshape(*q.shape[:2], HEADS, HEAD)
        k = k.at[table[0], 0].set(new_k[0, 0].reshape(HEADS, HEAD))
        v = v.at[table[0], 0].set(new_v[0, 0].reshape(HEADS, HEAD))
        seen_k, seen_v = (a[table].reshape(-1, HEADS, HEAD) for a in (k, v))
        scores = jnp.einsum("bqhd,khd->bhqk", heads, seen_k).astype(jnp.float32)
        mixed = jnp.einsum("bhqk,khd->bqhd", jax.nn.softmax(scores).astype(x.dtype), seen_v)
        return x + mixed.reshape(x.shape), (k, v)

    x, (keys, values) = jax.lax.scan(layer, x, (weights, keys, values))
    return x[:, -1], keys, values


def serve(job, pages=64):
    """Every bucket once, which is all that counts: their temporaries never overlap."""
    weights = job.put(np.zeros((LAYERS, WIDTH, 4 * WIDTH), jnp.bfloat16))
    keys, values = job.call(partial(make_cache, pages), name="cache")
    for rows, tokens in BUCKETS:
        x = job.put(np.zeros((rows, tokens, WIDTH), jnp.bfloat16))
        table = job.put(np.arange(32, dtype=np.int32))
        name = f"{rows}x{tokens}"
        last, keys, values = job.call(
            forward, weights, keys, values, x, table, donate=(1, 2), name=name
        )
        job.wait(last)
