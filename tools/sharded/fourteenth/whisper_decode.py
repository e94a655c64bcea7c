# mypy: ignore-errors
"""Clean. A decoding step of a speech recognizer: caches divided by batch and heads and updated in place, weights divided by
heads, positions whole."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, HEAD, VOCAB = 8, 1024, 8, 128, 32768
BATCH, AUDIO, TEXT = 16, 1536, 512
HEADS_OUT = P(None, None, "model", None)  # layer, dim, head, feature
CACHE = P(None, "data", "model", None, None)  # layer, batch, head, position, feature

WEIGHTS = {
    "self_q": ((LAYERS, DIM, HEADS, HEAD), HEADS_OUT),
    "self_k": ((LAYERS, DIM, HEADS, HEAD), HEADS_OUT),
    "self_v": ((LAYERS, DIM, HEADS, HEAD), HEADS_OUT),
    "self_o": ((LAYERS, HEADS, HEAD, DIM), P(None, "model")),
    "cross_q": ((LAYERS, DIM, HEADS, HEAD), HEADS_OUT),
    "cross_o": ((LAYERS, HEADS, HEAD, DIM), P(None, "model")),
    "fc1": ((LAYERS, DIM, 4 * DIM), P(None, None, "model")),
    "fc2": ((LAYERS, 4 * DIM, DIM), P(None, "model")),
}
TABLES = {"tokens": ((VOCAB, DIM), P("model", None)), "positions": ((TEXT, DIM), P())}


def layernorm(x):
    x32 = x.astype(jnp.float32)
    return ((x32 - x32.mean(-1, keepdims=True)) * jax.lax.rsqrt(x32.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def attend(q, keys, values, mask=None):
    scores = jnp.einsum("bhk,bhsk->bhs", q, keys).astype(jnp.float32) * HEAD**-0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("bhs,bhsk->bhk", jax.nn.softmax(scores, -1).astype(q.dtype), values)


def step(params, cross, cache, tokens, pos):
    """Appends one token to all hypotheses. `cross` was made from the audio by the encoder and stays as it is."""
    tables, layers = params
    x = tables["tokens"][tokens] + tables["positions"][pos]
    mask = jnp.arange(TEXT) <= pos

    def layer(carry, inputs):
        x, keys, values = carry
        i, w, cross_k, cross_v = inputs
        h = layernorm(x)
        project = lambda name: jnp.einsum("bd,dhk->bhk", h, w[name])
        at = (i, 0, 0, pos, 0)
        keys = jax.lax.dynamic_update_slice(keys, project("self_k")[None, :, :, None], at)
        values = jax.lax.dynamic_update_slice(values, project("self_v")[None, :, :, None], at)
        x = x + jnp.einsum("bhk,hkd->bd", attend(project("self_q"), keys[i], values[i], mask), w["self_o"])
        q = jnp.einsum("bd,dhk->bhk", layernorm(x), w["cross_q"])
        x = x + jnp.einsum("bhk,hkd->bd", attend(q, cross_k, cross_v), w["cross_o"])
        x = x + jax.nn.gelu(layernorm(x) @ w["fc1"]) @ w["fc2"]
        return (x, keys, values), None

    carry = (x, cache["k"], cache["v"])
    (x, keys, values), _ = jax.lax.scan(layer, carry, (jnp.arange(LAYERS), layers, cross["k"], cross["v"]))
    logits = layernorm(x) @ tables["tokens"].T
    logprobs = jax.nn.log_softmax(logits.astype(jnp.float32))
    best = jnp.argmax(logprobs, -1).astype(jnp.int32)
    return best, jnp.take_along_axis(logprobs, best[:, None], -1)[:, 0], {"k": keys, "v": values}, pos + 1


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    def array(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = tuple({k: array(*v) for k, v in group.items()} for group in (TABLES, WEIGHTS))
    cross = {k: array((LAYERS, BATCH, HEADS, AUDIO, HEAD), CACHE) for k in "kv"}
    cache = {k: array((LAYERS, BATCH, HEADS, TEXT, HEAD), CACHE) for k in "kv"}
    tokens, pos = array((BATCH,), P("data"), jnp.int32), array((), P(), jnp.int32)
    out = (tokens.sharding, tokens.sharding, {k: c.sharding for k, c in cache.items()}, pos.sharding)
    return jax.jit(step, donate_argnums=2, out_shardings=out), (params, cross, cache, tokens, pos)
