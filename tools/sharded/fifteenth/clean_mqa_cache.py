# mypy: ignore-errors
"""Clean. Decoding with multi-query attention: the one key/value head cannot be divided, so the cache is divided over the requests on all
chips while the weights are divided over the heads; the activations of one token move between the two layouts."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
LAYERS, D, HEADS, HEAD, FF, VOCAB, REQUESTS, CONTEXT = 8, 1024, 16, 128, 4096, 32768, 16, 8192

TABLE = {
    "embed": ((VOCAB, D), P("chips", None)),
    "wq": ((LAYERS, D, HEADS, HEAD), P(None, None, "chips", None)),
    "wkv": ((LAYERS, D, 2, HEAD), P()),
    "wo": ((LAYERS, HEADS, HEAD, D), P(None, "chips", None, None)),
    "w1": ((LAYERS, D, FF), P(None, None, "chips")),
    "w2": ((LAYERS, FF, D), P(None, "chips", None)),
    "scale": ((LAYERS, D), P()),
}
CACHE = P(None, None, "chips", None, None)
BY_HEAD, BY_REQUEST, WHOLE = P(None, "chips", None), P("chips", None, None), P(None, None)
pin = jax.lax.with_sharding_constraint


def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def layer(carry, w):
    x, cache, i, lengths = carry
    h = norm(x, w["scale"])
    q = pin(jnp.einsum("bd,dhk->bhk", h, w["wq"]), BY_HEAD)
    new = pin(jnp.einsum("bd,dtk->btk", h, w["wkv"]), BY_REQUEST)
    q = pin(q, BY_REQUEST)
    cache = pin(jax.lax.dynamic_update_slice(cache, new.swapaxes(0, 1)[None, :, :, None], (i, 0, 0, lengths.max(), 0)), CACHE)
    k, v = cache[i]
    scores = jnp.einsum("bhk,bsk->bhs", q, k).astype(jnp.float32) * HEAD**-0.5
    seen = jnp.arange(CONTEXT)[None] <= lengths[:, None]
    probs = jax.nn.softmax(jnp.where(seen[:, None], scores, -1e30)).astype(x.dtype)
    mixed = pin(jnp.einsum("bhs,bsk->bhk", probs, v), BY_REQUEST)
    mixed = pin(mixed, BY_HEAD)
    x = x + pin(jnp.einsum("bhk,hkd->bd", mixed, w["wo"]), WHOLE)
    x = x + pin(jax.nn.gelu(norm(x, w["scale"]) @ w["w1"]) @ w["w2"], WHOLE)
    return (x, cache, i + 1, lengths), None


def decode(params, cache, tokens, lengths):
    x = pin(params["embed"][tokens], WHOLE)
    layers = {k: v for k, v in params.items() if k != "embed"}
    (x, cache, _, _), _ = jax.lax.scan(layer, (x, cache, 0, lengths), layers)
    logits = pin(x @ params["embed"].T, P(None, "chips"))
    return jnp.argmax(logits, -1).astype(jnp.int32), cache, lengths + 1


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    jax.set_mesh(mesh)
    sds = lambda shape, spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    params = {k: sds(*v) for k, v in TABLE.items()}
    cache = sds((LAYERS, 2, REQUESTS, CONTEXT, HEAD), CACHE)
    ints = sds((REQUESTS,), P(), jnp.int32)
    return jax.jit(decode, donate_argnums=(1, 3), out_shardings=(P(), CACHE, P())), (params, cache, ints, ints)
