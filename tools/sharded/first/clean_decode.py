# mypy: ignore-errors
"""Clean. One token of a decoder: weights and cache split over 16 chips, the cache donated."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:4x4"


def make_clean(devices, batch=64, length=2048, heads=16, size=128, layers=2):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    width = heads * size

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    def decode(params, cache, x, position):
        new_cache = []
        for w, (old_keys, old_values) in zip(params, cache, strict=True):
            q, k, v = (jnp.einsum("bd,dhs->bhs", x, w[name]) for name in ("q", "k", "v"))
            keys = jax.lax.dynamic_update_slice(old_keys, k[:, None], (0, position, 0, 0))
            values = jax.lax.dynamic_update_slice(old_values, v[:, None], (0, position, 0, 0))
            scores = jax.nn.softmax(jnp.einsum("bhs,blhs->bhl", q, keys))
            mixed = jnp.einsum("bhl,blhs->bhs", scores, values)
            x = x + jnp.einsum("bhs,dhs->bd", mixed, w["o"])
            new_cache.append((keys, values))
        return new_cache, x

    weight = S((width, heads, size), "bfloat16", sharding=spec("data", "model"))
    entry = S((batch, length, heads, size), "bfloat16", sharding=spec("data", None, "model"))
    params = [dict.fromkeys(("q", "k", "v", "o"), weight)] * layers
    cache = [(entry, entry)] * layers
    x = S((batch, width), "bfloat16", sharding=spec("data"))
    return jax.jit(decode, donate_argnums=1), (params, cache, x, S((), "int32", sharding=spec()))
