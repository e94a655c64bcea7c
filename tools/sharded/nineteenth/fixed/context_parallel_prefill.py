# mypy: ignore-errors
"""Clean. The cache is stacked from the keys and values as they are split, not as gathered.

Prefill of a long prompt for serving: context parallel times tensor parallel, attention in query chunks.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CP, TP = 4, 4
CHUNK = 128


class Arch(NamedTuple):
    layers: int = 12
    dim: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 2816
    vocab: int = 32_768
    batch: int = 2
    prompt: int = 16_384


def weights(arch, mesh):
    n, d, h, g, k, f = arch.layers, arch.dim, arch.heads, arch.kv_heads, arch.head_dim, arch.ffn

    def w(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*axes)))

    return {
        "embed": w((arch.vocab, d), "tp"),
        "blocks": {
            "q": w((n, d, h, k), None, None, "tp"),
            "k": w((n, d, g, k), None, None, "tp"),
            "v": w((n, d, g, k), None, None, "tp"),
            "o": w((n, h, k, d), None, "tp"),
            "gate": w((n, d, f), None, None, "tp"),
            "up": w((n, d, f), None, None, "tp"),
            "down": w((n, f, d), None, "tp"),
            "norms": w((n, 2, d)),
        },
        "norm": w((d,)),
        "head": w((d, arch.vocab), None, "tp"),
    }


def rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def rotate(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] * (500_000.0 ** (-jnp.arange(half) / half))
    cos, sin = (f(angles)[:, None, :].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def chunked_attention(q, k, v, positions):
    """Causal attention; every context-parallel rank works through its own queries chunk by chunk."""
    b, t, h, d = q.shape
    g = k.shape[2]
    q = q.reshape(b, CP, t // CP // CHUNK, CHUNK, g, h // g, d)
    where = positions.reshape(CP, t // CP // CHUNK, CHUNK)

    def one(args):
        q, where = args  # b r c g m d
        scores = jnp.einsum("brcgmd,bsgd->brgmcs", q, k).astype(jnp.float32) * d**-0.5
        seen = where[:, None, None, :, None] >= positions
        probs = jax.nn.softmax(jnp.where(seen, scores, -1e30)).astype(v.dtype)
        return jnp.einsum("brgmcs,bsgd->brcgmd", probs, v)

    y = jax.lax.map(one, (jnp.moveaxis(q, 2, 0), jnp.moveaxis(where, 1, 0)))
    return jnp.moveaxis(y, 0, 2).reshape(b, t, h, d)


def prefill(arch, mesh, params, tokens):
    def pin(x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    positions = jnp.arange(arch.prompt)
    x = pin(params["embed"][tokens], None, "cp")

    def block(x, p):
        y = rms(x, p["norms"][0])
        q, k, v = (pin(jnp.einsum("btd,dhk->bthk", y, p[n]), None, "cp", "tp") for n in "qkv")
        q, k = rotate(q, positions), rotate(k, positions)
        k_all, v_all = (pin(y, None, None, "tp") for y in (k, v))
        y = chunked_attention(q, k_all, v_all, positions)
        x = pin(x + jnp.einsum("bthk,hkd->btd", y, p["o"]), None, "cp")
        y = rms(x, p["norms"][1])
        y = jax.nn.silu(y @ p["gate"]) * (y @ p["up"])
        x = pin(x + y @ p["down"], None, "cp")
        return x, tuple(pin(y, None, "cp", "tp") for y in (k, v))

    x, (keys, values) = jax.lax.scan(block, x, params["blocks"])
    logits = rms(x[:, -1], params["norm"]) @ params["head"]
    return {"k": keys, "v": values}, jnp.argmax(logits, axis=-1)


def make_fixed(devices):
    arch = Arch()
    mesh = Mesh(np.array(devices).reshape(CP, TP), ("cp", "tp"))
    tokens = jax.ShapeDtypeStruct(
        (arch.batch, arch.prompt), jnp.int32, sharding=NamedSharding(mesh, P(None, "cp"))
    )
    return jax.jit(functools.partial(prefill, arch, mesh)), (weights(arch, mesh), tokens)
