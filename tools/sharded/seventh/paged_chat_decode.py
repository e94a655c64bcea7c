# mypy: ignore-errors
"""Fault: donated. The cache is donated split over batch and heads, but the step returns it in the layout table of the router,
which names the batch only: no buffer can be reused, and an old and a four times larger new cache exist at once."""
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


class Dims(NamedTuple):
    layers: int = 6
    batch: int = 32
    context: int = 1024
    heads: int = 16
    head_dim: int = 128
    width: int = 2048
    ff: int = 5632


class Cache(NamedTuple):
    k: jax.Array
    v: jax.Array
    length: jax.Array


HEAD_LAYOUT = Cache(k=P(None, "dp", None, "tp", None), v=P(None, "dp", None, "tp", None), length=P("dp"))
ROUTER_LAYOUT = Cache(k=P(None, "dp"), v=P(None, "dp"), length=P("dp"))

WEIGHT_SPECS = {
    "qkv": P(None, None, None, "tp", None),
    "o": P(None, "tp", None, None),
    "up": P(None, None, "tp"),
    "down": P(None, "tp", None),
}


def weight_shapes(d):
    return {
        "qkv": (d.layers, d.width, 3, d.heads, d.head_dim),
        "o": (d.layers, d.heads, d.head_dim, d.width),
        "up": (d.layers, d.width, d.ff),
        "down": (d.layers, d.ff, d.width),
    }


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def attend(q, k, v, length):
    s = jnp.einsum("bhd,bthd->bht", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.arange(k.shape[1])[None, None] <= length[:, None, None], s, -jnp.inf)
    return jnp.einsum("bht,bthd->bhd", jax.nn.softmax(s, -1).astype(v.dtype), v)


def decode_step(weights, cache, x):
    write_at = jax.nn.one_hot(cache.length, cache.k.shape[2], dtype=jnp.bool_)[..., None, None]

    def layer(x, scanned):
        w, ck, cv = scanned
        q, k, v = jnp.moveaxis(jnp.einsum("bd,dchk->bchk", rms(x), w["qkv"]), 1, 0)
        ck = jnp.where(write_at, k[:, None], ck)
        cv = jnp.where(write_at, v[:, None], cv)
        x = x + jnp.einsum("bhk,hkd->bd", attend(q, ck, cv, cache.length), w["o"])
        x = x + jax.nn.gelu(rms(x) @ w["up"]) @ w["down"]
        return x, (ck, cv)

    x, (k, v) = jax.lax.scan(layer, x, (weights, cache.k, cache.v))
    return x, Cache(k, v, cache.length + 1)


def named(mesh, tree):
    return jax.tree.map(functools.partial(NamedSharding, mesh), tree, is_leaf=lambda s: isinstance(s, P))


def server(devices, result_layout):
    d = Dims()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "tp"))
    bf = jnp.bfloat16
    weights = {
        k: jax.ShapeDtypeStruct(s, bf, sharding=NamedSharding(mesh, WEIGHT_SPECS[k])) for k, s in weight_shapes(d).items()
    }
    held = named(mesh, HEAD_LAYOUT)
    kv_shape = (d.layers, d.batch, d.context, d.heads, d.head_dim)
    cache = Cache(
        k=jax.ShapeDtypeStruct(kv_shape, bf, sharding=held.k),
        v=jax.ShapeDtypeStruct(kv_shape, bf, sharding=held.v),
        length=jax.ShapeDtypeStruct((d.batch,), jnp.int32, sharding=held.length),
    )
    x = jax.ShapeDtypeStruct((d.batch, d.width), bf, sharding=NamedSharding(mesh, P("dp", None)))
    fn = jax.jit(decode_step, donate_argnames=("cache",), out_shardings=(x.sharding, named(mesh, result_layout)))
    return fn, (weights, cache, x)


def make_faulty(devices):
    return server(devices, ROUTER_LAYOUT)  # FAULT


def make_fixed(devices):
    return server(devices, HEAD_LAYOUT)
