"""Decoding with a KV cache: as `xs` and `ys` of the scan over layers, or in its carry."""

import compiling
import jax
import jax.numpy as jnp
from jax import lax

D, V = 512, 8192
config = compiling.options(
    __doc__,
    donate=False,
    carry=False,
    fold=False,
    dtype="bfloat16",
    heads=8,
    head_dim=64,
    max_len=1024,
    batch=8,
    layers=8,
    steps=32,
)
H, K, L = config.heads, config.head_dim, config.layers


def entry(x):
    """One position as the cache holds it: heads apart, or folded into one dimension."""
    return x.reshape(x.shape[0], 1, H * K) if config.fold else x[:, None]


def attend(x, w, keys, values, pos):
    q = jnp.einsum("bd,dhk->bhk", x, w["q"])
    keys, values = (part.reshape(*part.shape[:2], H, K) for part in (keys, values))
    scores = jnp.einsum("bhk,bshk->bhs", q, keys)
    scores = jnp.where(jnp.arange(keys.shape[1]) <= pos, scores, -1e9)
    out = jnp.einsum("bhs,bshk->bhk", jax.nn.softmax(scores), values)
    x = x + jnp.einsum("bhk,hkd->bd", out, w["o"])
    return x + jax.nn.relu(x @ w["up"]) @ w["down"]


def scanned_layers(x, layers, cache, pos):
    """The cache is an input and an output of the scan: two of it are held."""

    def layer(x, inputs):
        w, keys, values = inputs
        start = (0, pos) + (0,) * (keys.ndim - 2)
        new = [entry(jnp.einsum("bd,dhk->bhk", x, w[name])) for name in ("k", "v")]
        keys = lax.dynamic_update_slice(keys, new[0], start)
        values = lax.dynamic_update_slice(values, new[1], start)
        return attend(x, w, keys, values, pos), (keys, values)

    return lax.scan(layer, x, (layers, *cache))


def carried_layers(x, layers, cache, pos):
    """The cache is carried, and written where it lies."""

    def layer(carry, inputs):
        x, keys, values = carry
        w, i = inputs
        start = (i, 0, pos) + (0,) * (keys.ndim - 3)
        new = [entry(jnp.einsum("bd,dhk->bhk", x, w[name]))[None] for name in ("k", "v")]
        keys = lax.dynamic_update_slice(keys, new[0], start)
        values = lax.dynamic_update_slice(values, new[1], start)
        here = (lax.dynamic_index_in_dim(part, i, 0, False) for part in (keys, values))
        return (attend(x, w, *here, pos), keys, values), None

    (x, *cache), _ = lax.scan(layer, (x, *cache), (layers, jnp.arange(L)))
    return x, tuple(cache)


def decode(params, kcache, vcache, token, pos):
    apply_layers = carried_layers if config.carry else scanned_layers

    def body(i, state):
        token, cache, out = state
        x = params["embed"][token]
        x, cache = apply_layers(x, params["layers"], cache, pos + i)
        token = jnp.argmax(x @ params["embed"].T, -1).astype(jnp.int32)
        return token, cache, lax.dynamic_update_slice(out, token[:, None], (0, i))

    out = jnp.zeros((token.shape[0], config.steps), jnp.int32)
    _, cache, out = lax.fori_loop(0, config.steps, body, (token, (kcache, vcache), out))
    return out, *cache


def array(*shape, dtype=config.dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


sharding = compiling.single(config.platform)
heads = {name: array(L, D, H, K) for name in ("q", "k", "v")}
dense = {"o": array(L, H, K, D), "up": array(L, D, 4 * D), "down": array(L, 4 * D, D)}
params = {"embed": array(V, D), "layers": heads | dense}
cache = array(L, config.batch, config.max_len, *((H * K,) if config.fold else (H, K)))
step = jax.jit(decode, donate_argnames=("kcache", "vcache") if config.donate else ())
token, pos = array(config.batch, dtype=jnp.int32), array(dtype=jnp.int32)
compiling.compile_and_report(step.lower(params, cache, cache, token, pos), "decode")
