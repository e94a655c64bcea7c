# mypy: ignore-errors
"""Clean. Greedy decoding of sixteen tokens in one program: the donated cache is split over rows and heads and written in place."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
L, D, H, K, V, B, T = 6, 1024, 8, 128, 16384, 16, 2048


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("rows", "heads"))

    def one_token(params, cache, token, pos):
        x = params["embed"][token]

        def layer(carry, inputs):
            x, cache = carry
            w, i = inputs
            q, k, v = jnp.einsum("bd,cdhk->cbhk", x, w["qkv"])
            new = jnp.stack([k, v])[None, :, :, :, None]
            cache = lax.dynamic_update_slice(cache, new, (i, 0, 0, 0, pos, 0))
            ks, vs = lax.dynamic_index_in_dim(cache, i, keepdims=False)
            s = jnp.einsum("bhk,bhtk->bht", q, ks).astype(jnp.float32) * K**-0.5
            p = jax.nn.softmax(jnp.where(jnp.arange(T) <= pos, s, -1e9)).astype(x.dtype)
            x = x + jnp.einsum("bht,bhtk,hkd->bd", p, vs, w["o"])
            return (x + jax.nn.relu(x @ w["up"]) @ w["down"], cache), None

        (x, cache), _ = lax.scan(layer, (x, cache), (params["layers"], jnp.arange(L)))
        return jnp.argmax(x @ params["embed"].T, -1).astype(jnp.int32), cache

    def generate(params, cache, token, pos):
        def body(carry, i):
            token, cache = carry
            token, cache = one_token(params, cache, token, pos + i)
            return (token, cache), token

        (_, cache), out = lax.scan(body, (token, cache), jnp.arange(16))
        return out, cache

    S = lambda shape, *spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    layers = {
        "qkv": S((L, 3, D, H, K), None, None, "rows", "heads"),
        "o": S((L, H, K, D), None, "heads", None, "rows"),
        "up": S((L, D, 4 * D), None, "rows", "heads"),
        "down": S((L, 4 * D, D), None, "heads", "rows"),
    }
    params = {"embed": S((V, D), "heads", "rows"), "layers": layers}
    cache = S((L, 2, B, H, T, K), None, None, "rows", "heads")
    outs = (NamedSharding(mesh, P(None, "rows")), cache.sharding)
    args = (params, cache, S((B,), "rows", dtype=jnp.int32), S((), dtype=jnp.int32))
    return jax.jit(generate, donate_argnums=1, out_shardings=outs), args
