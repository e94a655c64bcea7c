"""Greedy decoding with a KV cache: lax.while_loop over tokens, lax.scan over layers."""

import compiling
import jax
import jax.numpy as jnp
from jax import lax

D, H, DH, V = 512, 8, 64, 32000
config = compiling.options(__doc__, donate=False, steps=64, max_len=1024, batch=8, layers=8)


def layer(carry, inputs):
    x, pos = carry
    w, kc, vc = inputs
    q, k, v = (jnp.einsum("bd,dhk->bhk", x, w[n]) for n in ("q", "k", "v"))
    kc = lax.dynamic_update_slice(kc, k[:, None], (0, pos, 0, 0))
    vc = lax.dynamic_update_slice(vc, v[:, None], (0, pos, 0, 0))
    s = jnp.einsum("bhk,bshk->bhs", q, kc) / 8.0
    s = jnp.where(jnp.arange(kc.shape[1]) <= pos, s, -1e9)
    p = jax.nn.softmax(s.astype(jnp.float32), -1).astype(x.dtype)
    o = jnp.einsum("bhs,bshk->bhk", p, vc)
    x = x + jnp.einsum("bhk,hkd->bd", o, w["o"])
    x = x + jax.nn.relu(x @ w["up"]) @ w["down"]
    return (x, pos), (kc, vc)


def decode(params, kcache, vcache, token, pos):
    def cond(s):
        return s[0] < config.steps

    def body(s):
        i, token, pos, kc, vc, out = s
        x = params["embed"][token]
        (x, _), (kc, vc) = lax.scan(layer, (x, pos), (params["layers"], kc, vc))
        logits = x @ params["embed"].T
        token = jnp.argmax(logits, -1).astype(jnp.int32)
        out = lax.dynamic_update_slice(out, token[:, None], (0, i))
        return i + 1, token, pos + 1, kc, vc, out

    out = jnp.zeros((token.shape[0], config.steps), jnp.int32)
    s = lax.while_loop(cond, body, (0, token, pos, kcache, vcache, out))
    return s[5], s[3], s[4]


sharding = compiling.single(config.platform)


def array(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


L = config.layers
heads = {name: array(L, D, H, DH) for name in ("q", "k", "v")}
dense = {"o": array(L, H, DH, D), "up": array(L, D, 4 * D), "down": array(L, 4 * D, D)}
params = {"embed": array(V, D), "layers": heads | dense}
cache = array(L, config.batch, config.max_len, H, DH)
step = jax.jit(decode, donate_argnums=(1, 2) if config.donate else ())
token, pos = array(config.batch, dtype=jnp.int32), array(dtype=jnp.int32)
compiling.compile_and_report(step.lower(params, cache, cache, token, pos), "decode")
