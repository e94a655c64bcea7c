# mypy: ignore-errors
"""Fault: replicated. Decoding on a 2 x 4 mesh: the key/value cache is split over the batch but repeated over `model`, though its 8 heads would go over it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
LAYERS, BATCH, CONTEXT, HEADS, SIZE = 6, 16, 1024, 8, 64
WIDTH = HEADS * SIZE


def one_token(weights, cache, x, position, pin):
    def layer(i, carry):
        x, cache = carry
        w = jax.tree.map(lambda a: a[i], weights)
        q, k, v = (jnp.einsum("bd,dhs->bhs", x, w[n]) for n in ("q", "k", "v"))
        cache = lax.dynamic_update_slice(cache, jnp.stack([k, v])[None, :, :, None], (i, 0, 0, position, 0, 0))
        cache = pin(cache)
        keys, values = cache[i]
        a = jax.nn.softmax(jnp.where(jnp.arange(CONTEXT) <= position, jnp.einsum("bhs,bths->bht", q, keys) / 8, -1e9))
        return x + jnp.einsum("bht,bths,hsd->bd", a, values, w["o"]), cache

    return lax.fori_loop(0, LAYERS, layer, (x, cache))


def decode(devices, cache_spec):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    named = lambda *spec: NamedSharding(mesh, P(*spec))
    struct = lambda shape, *spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=named(*spec))
    weights = {n: struct((LAYERS, WIDTH, HEADS, SIZE), None, "data", "model") for n in "qkv"} | {"o": struct((LAYERS, HEADS, SIZE, WIDTH), None, "model", None, "data")}
    cache = struct((LAYERS, 2, BATCH, CONTEXT, HEADS, SIZE), *cache_spec)  # FAULT
    pin = lambda c: lax.with_sharding_constraint(c, named(*cache_spec))
    fn = jax.jit(partial(one_token, pin=pin), donate_argnums=1, out_shardings=(named("data"), cache.sharding))
    return fn, (weights, cache, struct((BATCH, WIDTH), "data"), jax.ShapeDtypeStruct((), jnp.int32, sharding=named()))


def make_faulty(devices):
    return decode(devices, (None, None, "data"))  # FAULT


def make_fixed(devices):
    return decode(devices, (None, None, "data", None, "model"))
