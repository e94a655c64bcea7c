# mypy: ignore-errors
"""Fault: padding. Attention scores are split over the five key-value heads on a four-way axis, which pads five heads to
eight; the query positions of the same tensor divide evenly."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

# A 360M model: 15 query heads in 5 groups of 3.
LAYERS = 4
HIDDEN = 960
KV_GROUPS = 5
PER_GROUP = 3
HEAD = 64
INTER = 2560
PROMPTS = 4
PROMPT_LEN = 2048


def rope(x, theta=1e4):
    half = x.shape[-1] // 2
    freq = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * freq
    angle = angle.reshape((1, x.shape[1]) + (1,) * (x.ndim - 3) + (half,))
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1).astype(x.dtype)


def rms_norm(x, g):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-5).astype(x.dtype)) * g


def attention(x, w, pin_scores):
    b, s, _ = x.shape
    q = rope((x @ w["q"]).reshape(b, s, KV_GROUPS, PER_GROUP, HEAD))
    k = rope((x @ w["k"]).reshape(b, s, KV_GROUPS, HEAD))
    v = (x @ w["v"]).reshape(b, s, KV_GROUPS, HEAD)
    scores = jnp.einsum("bqghd,bkgd->bghqk", q, k, preferred_element_type=jnp.float32) * HEAD**-0.5
    scores = pin_scores(scores)
    causal = jnp.tril(jnp.ones((s, s), bool))
    scores = jnp.where(causal, scores, -1e9)
    probs = pin_scores(jax.nn.softmax(scores, axis=-1))
    entropy = -jnp.sum(probs * jnp.log(probs + 1e-9), axis=-1)  # used by the cache eviction
    out = jnp.einsum("bghqk,bkgd->bqghd", probs.astype(v.dtype), v)
    importance = probs.sum(axis=(1, 2, 3))
    return out.reshape(b, s, -1) @ w["o"], k, v, importance, entropy.mean()


def prefill(weights, embeddings, pin_scores, pin_act):
    def layer(x, w):
        a, k, v, importance, entropy = attention(rms_norm(x, w["ln_a"]), w, pin_scores)
        x = pin_act(x + a)
        h = rms_norm(x, w["ln_m"])
        x = pin_act(x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"])
        return x, (k, v, importance, entropy)

    x, collected = jax.lax.scan(layer, embeddings, weights)
    return x[:, -1], collected


def engine(devices, score_spec):
    mesh = Mesh(np.array(devices), ("tp",))
    sharding = lambda *spec: NamedSharding(mesh, P(*spec))
    shapes = {
        "q": ((HIDDEN, KV_GROUPS * PER_GROUP * HEAD), (None, None, "tp")),
        "k": ((HIDDEN, KV_GROUPS * HEAD), (None, None, "tp")),
        "v": ((HIDDEN, KV_GROUPS * HEAD), (None, None, "tp")),
        "o": ((KV_GROUPS * PER_GROUP * HEAD, HIDDEN), (None, "tp", None)),
        "gate": ((HIDDEN, INTER), (None, None, "tp")),
        "up": ((HIDDEN, INTER), (None, None, "tp")),
        "down": ((INTER, HIDDEN), (None, "tp", None)),
        "ln_a": ((HIDDEN,), ()),
        "ln_m": ((HIDDEN,), ()),
    }
    weights = {
        name: jax.ShapeDtypeStruct((LAYERS, *shape), jnp.bfloat16, sharding=sharding(*spec))
        for name, (shape, spec) in shapes.items()
    }
    prompt = jax.ShapeDtypeStruct((PROMPTS, PROMPT_LEN, HIDDEN), jnp.bfloat16, sharding=sharding())
    pin_scores = lambda s: jax.lax.with_sharding_constraint(s, NamedSharding(mesh, score_spec))
    pin_act = lambda a: jax.lax.with_sharding_constraint(a, sharding())
    return jax.jit(lambda w, x: prefill(w, x, pin_scores, pin_act)), (weights, prompt)


def make_faulty(devices):
    return engine(devices, P(None, "tp", None, None, None))  # FAULT


def make_fixed(devices):
    return engine(devices, P(None, None, None, "tp", None))
