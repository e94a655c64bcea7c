# mypy: ignore-errors
"""Fault: padding. The attention scores are divided over their 9 heads on an axis of 8 devices, so
that every device gets two heads and nearly half of them are padding."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

HEADS = 9
HEAD_DIM = 64
WIDTH = HEADS * HEAD_DIM
SIDE = 32  # tokens per image side
IMAGES = 12
BLOCKS = 2

ACTIVATIONS = {
    "tokens": P(None, "tp", None),  # image, token, channel
    "hidden": P(None, "tp", None),
    "scores": P(None, "tp", None, None),  # FAULT
    "pyramid": P(None, "tp", None, None),
}


class Sharder:
    """Constrains a value by the name of its role."""

    def __init__(self, mesh, table):
        self.mesh, self.table = mesh, table

    def __call__(self, role, x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, self.table[role]))


def layer_norm(x, scale):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale


def relative_bias(table, side):
    """(heads, 2*side-1, 2*side-1) table -> (heads, side*side, side*side)."""
    offset = jnp.arange(side)[:, None] - jnp.arange(side)[None, :] + side - 1
    rows = table[:, offset]  # heads, side, side, 2*side-1
    both = rows[..., offset]  # heads, side, side, side, side
    return both.transpose(0, 1, 3, 2, 4).reshape(table.shape[0], side**2, side**2)


def attention(put, w, x):
    b, n, _ = x.shape
    q, k, v = (jnp.einsum("bnc,chd->bhnd", x, w[name]) for name in ("q", "k", "v"))
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k) / math.sqrt(HEAD_DIM)
    scores = put("scores", scores + relative_bias(w["rel"], SIDE))  # FAULT
    probs = jax.nn.softmax(scores, axis=-1)
    out = jnp.einsum("bhnm,bhmd->bnhd", probs, v)
    return jnp.einsum("bnhd,hdc->bnc", out, w["o"])


def mlp(put, w, x):
    return put("hidden", jax.nn.gelu(x @ w["up"])) @ w["down"]


def encode(put, params, pixels):
    b = pixels.shape[0]
    patches = pixels.reshape(b, SIDE, 16, SIDE, 16, 3).swapaxes(2, 3).reshape(b, SIDE * SIDE, 768)
    x = put("tokens", patches @ params["patch"])
    for w in params["blocks"]:
        x = put("tokens", x + attention(put, w["attn"], layer_norm(x, w["n1"])))
        x = put("tokens", x + mlp(put, w["mlp"], layer_norm(x, w["n2"])))
    return put("pyramid", x.reshape(b, SIDE, SIDE, WIDTH))


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def abstract_params():
    def block():
        qkv = {name: f32(WIDTH, HEADS, HEAD_DIM) for name in ("q", "k", "v")}
        attn = qkv | {"o": f32(HEADS, HEAD_DIM, WIDTH), "rel": f32(HEADS, 2 * SIDE - 1, 2 * SIDE - 1)}
        ffn = {"up": f32(WIDTH, 4 * WIDTH), "down": f32(4 * WIDTH, WIDTH)}
        return {"attn": attn, "mlp": ffn, "n1": f32(WIDTH), "n2": f32(WIDTH)}

    return {"patch": f32(768, WIDTH), "blocks": [block() for _ in range(BLOCKS)]}


def weight_sharding(mesh, leaf):
    # divide the first matrix dimension: 576, 768 and 2304 are multiples of 8
    divided = leaf.ndim > 1 and leaf.shape[0] % mesh.size == 0
    return NamedSharding(mesh, P("tp") if divided else P())


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("tp",))
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=weight_sharding(mesh, s)), abstract_params()
    )
    pixels = jax.ShapeDtypeStruct(
        (IMAGES, SIDE * 16, SIDE * 16, 3), jnp.float32, sharding=NamedSharding(mesh, P(None, "tp"))
    )
    put = Sharder(mesh, ACTIVATIONS)
    return jax.jit(lambda params, pixels: encode(put, params, pixels)), (params, pixels)
