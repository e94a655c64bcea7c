# mypy: ignore-errors
"""Fault: reshard. To go from splitting the sequence to splitting the heads, queries, keys and values pass through a
layout that is whole on every chip, where one direct change of layout (an all-to-all) would do.

Prefill of a long context with sequence parallelism, attention by heads.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LENGTH = 32768
WIDTH = 2048
HEADS = 16
HEAD_DIM = WIDTH // HEADS
HIDDEN = 8192
LAYERS = 4
QUERY_BLOCK = 256


class Layouts:
    """The layouts of activations, (sequence, heads, head_dim) or (sequence, width)."""

    def __init__(self, mesh):
        self.by_token = NamedSharding(mesh, P("sp"))
        self.by_head = NamedSharding(mesh, P(None, "sp"))
        self.anywhere = NamedSharding(mesh, P())


def pin(x, sharding):
    return jax.lax.with_sharding_constraint(x, sharding)


def rms_norm(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def blocked_attention(q, k, v):
    """Causal attention over blocks of queries; q, k, v are (sequence, heads, head_dim)."""
    blocks = q.reshape(LENGTH // QUERY_BLOCK, QUERY_BLOCK, HEADS, HEAD_DIM)
    starts = jnp.arange(LENGTH // QUERY_BLOCK) * QUERY_BLOCK
    positions = jnp.arange(LENGTH)

    def one(block):
        start, queries = block
        scores = jnp.einsum("qhd,khd->hqk", queries, k, preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
        visible = positions[None, :] <= start + jnp.arange(QUERY_BLOCK)[:, None]
        probs = jax.nn.softmax(jnp.where(visible, scores, -1e30))
        return jnp.einsum("hqk,khd->qhd", probs.astype(v.dtype), v)

    return jax.lax.map(one, (starts, blocks)).reshape(LENGTH, HEADS, HEAD_DIM)


def tokens_to_heads(x, layouts):
    x = pin(x, layouts.anywhere)  # FAULT
    return pin(x, layouts.by_head)


def attention(x, w, layouts):
    q, k, v = (pin((x @ w[name]).reshape(LENGTH, HEADS, HEAD_DIM), layouts.by_token) for name in ("wq", "wk", "wv"))
    q, k, v = (tokens_to_heads(t, layouts) for t in (q, k, v))
    out = pin(blocked_attention(q, k, v), layouts.by_head)
    return pin(out, layouts.by_token).reshape(LENGTH, WIDTH) @ w["wo"]


def prefill(weights, tokens, layouts):
    x = pin(weights["embed"][tokens], layouts.by_token)
    for w in weights["layers"]:
        x = x + attention(rms_norm(x, w["norm1"]), w, layouts)
        x = x + jax.nn.gelu(rms_norm(x, w["norm2"]) @ w["up"]) @ w["down"]
        x = pin(x, layouts.by_token)
    last = rms_norm(x[-1], weights["norm"])
    return last @ weights["embed"].T, x


def abstract_weights(mesh):
    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))

    layer = {
        "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH),
        "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
    }
    layers = [
        {**{name: array(shape, "sp") for name, shape in layer.items()}, "norm1": array((WIDTH,)), "norm2": array((WIDTH,))}
        for _ in range(LAYERS)
    ]
    return {"embed": array((8192, WIDTH), "sp"), "norm": array((WIDTH,)), "layers": layers}


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(16), ("sp",))
    layouts = Layouts(mesh)
    tokens = jax.ShapeDtypeStruct((LENGTH,), jnp.int32, sharding=layouts.by_token)
    jitted = jax.jit(partial(prefill, layouts=layouts), out_shardings=(layouts.anywhere, layouts.by_token))
    return jitted, (abstract_weights(mesh), tokens)
