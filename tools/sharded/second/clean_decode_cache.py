# mypy: ignore-errors
"""Clean. A decoding step on four chips: batch split over `b`, heads over `h`, cache donated and kept in place."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
L, B, T, H, S = 8, 32, 2048, 8, 128


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("b", "h"))
    arr = lambda shape, *s, dt=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dt, sharding=NamedSharding(mesh, P(*s)))
    kv = P(None, "b", None, "h", None)

    def decode(weights, keys, values, x, pos):
        def layer(i, c):
            x, keys, values = c
            wq, wk, wv, wo = (jax.lax.dynamic_index_in_dim(w, i, 0, False) for w in weights)
            q, k, v = (jnp.einsum("bd,dhs->bhs", x, w) for w in (wq, wk, wv))
            keys = jax.lax.dynamic_update_slice(keys, k[None, :, None], (i, 0, pos, 0, 0))
            values = jax.lax.dynamic_update_slice(values, v[None, :, None], (i, 0, pos, 0, 0))
            a = jnp.einsum("bhs,bths->bht", q, keys[i]).astype(jnp.float32) * S**-0.5
            a = jax.nn.softmax(jnp.where(jnp.arange(T) <= pos, a, -1e9)).astype(x.dtype)
            return x + jnp.einsum("bht,bths,hsd->bd", a, values[i], wo), keys, values

        return jax.lax.fori_loop(0, L, layer, (x, keys, values))

    w = [arr((L, H * S, H, S), None, "b", "h")] * 3 + [arr((L, H, S, H * S), None, "h", None, "b")]
    cache = arr((L, B, T, H, S), *kv)
    out = NamedSharding(mesh, P("b")), cache.sharding, cache.sharding
    return jax.jit(decode, donate_argnums=(1, 2), out_shardings=out), (w, cache, cache, arr((B, H * S), "b"), arr((), dt=jnp.int32))
