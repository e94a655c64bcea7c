# mypy: ignore-errors
"""Fault: replicated. The value half of the decode cache is split over "data" only while the keys are also split over "model" by heads; every device holds four times the values it needs."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

LAYERS, BATCH, LENGTH, HEADS, HEAD_DIM, WIDTH = 6, 16, 1024, 8, 64, 512

SHAPES = {
    "wq": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wk": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wv": (LAYERS, WIDTH, HEADS, HEAD_DIM),
    "wo": (LAYERS, HEADS, HEAD_DIM, WIDTH),
    "w_in": (LAYERS, WIDTH, 4 * WIDTH),
    "w_out": (LAYERS, 4 * WIDTH, WIDTH),
    "cache_k": (LAYERS, BATCH, LENGTH, HEADS, HEAD_DIM),
    "cache_v": (LAYERS, BATCH, LENGTH, HEADS, HEAD_DIM),
}

SPECS = {
    "wq": P(None, None, "model"),
    "wk": P(None, None, "model"),
    "wv": P(None, None, "model"),
    "wo": P(None, "model"),
    "w_in": P(None, None, "model"),
    "w_out": P(None, "model"),
    "cache_k": P(None, "data", None, "model"),
    "cache_v": P(None, "data"),  # FAULT
}

WEIGHTS = ("wq", "wk", "wv", "wo", "w_in", "w_out")


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(x, position, w, k, v):
    h = rms(x)
    q = jnp.einsum("bd,dhk->bhk", h, w["wq"])
    k_new = jnp.einsum("bd,dhk->bhk", h, w["wk"])
    v_new = jnp.einsum("bd,dhk->bhk", h, w["wv"])
    k = jax.lax.dynamic_update_slice_in_dim(k, k_new[:, None], position, axis=1)
    v = jax.lax.dynamic_update_slice_in_dim(v, v_new[:, None], position, axis=1)
    scores = jnp.einsum("bhk,bshk->bhs", q, k) / HEAD_DIM**0.5
    seen = jnp.arange(LENGTH) <= position
    probs = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhs,bshk->bhk", probs, v)
    x = x + jnp.einsum("bhk,hkd->bd", mixed, w["wo"])
    x = x + jax.nn.gelu(rms(x) @ w["w_in"]) @ w["w_out"]
    return x, k, v


def decode(weights, cache, x, position):
    def body(x, per_layer):
        w, k, v = per_layer
        x, k, v = layer(x, position, w, k, v)
        return x, (k, v)

    x, (ks, vs) = jax.lax.scan(body, x, (weights, cache["cache_k"], cache["cache_v"]))
    return x, {"cache_k": ks, "cache_v": vs}


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    sharding = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    row = NamedSharding(mesh, P("data"))

    def struct(name):
        return jax.ShapeDtypeStruct(SHAPES[name], jnp.float32, sharding=sharding[name])

    weights = {name: struct(name) for name in WEIGHTS}
    cache = {name: struct(name) for name in ("cache_k", "cache_v")}
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32, sharding=row)
    position = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    step = jax.jit(
        decode,
        donate_argnums=1,
        out_shardings=(row, {name: sharding[name] for name in cache}),
    )
    return step, (weights, cache, x, position)
