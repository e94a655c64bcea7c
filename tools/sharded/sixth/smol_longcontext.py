# mypy: ignore-errors
"""Fault: padding. The small model has nine attention heads, split over a model axis of eight, so that every chip gets room for two heads of
queries and scores; splitting the query positions instead fits exactly."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

# [batch, head, query, key/dim]
HEAD_PARALLEL = P("data", "model", None, None)
QUERY_PARALLEL = P("data", None, "model", None)


@dataclasses.dataclass(frozen=True)
class SmolConfig:
    hidden: int = 576
    heads: int = 9
    head_dim: int = 64
    ff: int = 1536
    layers: int = 4
    vocab: int = 16_384
    batch: int = 2
    seq: int = 4096
    score_spec: P = HEAD_PARALLEL  # FAULT


def pin(mesh, x, spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def rope(x):
    d = x.shape[-1] // 2
    ang = jnp.arange(x.shape[-2])[:, None] / 10_000 ** (jnp.arange(d) / d)
    a, b = jnp.split(x, 2, axis=-1)
    c, s = jnp.cos(ang).astype(x.dtype), jnp.sin(ang).astype(x.dtype)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def rms(x, g):
    return (x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5) * g).astype(x.dtype)


def attention(cfg, mesh, x, w):
    b, s, _ = x.shape

    def heads(m):
        return (x @ m).reshape(b, s, cfg.heads, cfg.head_dim).swapaxes(1, 2)

    q = pin(mesh, rope(heads(w["q"])), cfg.score_spec)
    k, v = rope(heads(w["k"])), heads(w["v"])
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * cfg.head_dim**-0.5
    scores = pin(mesh, scores, cfg.score_spec)
    i = jnp.arange(s)
    probs = jax.nn.softmax(jnp.where(i[:, None] >= i[None, :], scores, -1e30), axis=-1).astype(x.dtype)
    o = pin(mesh, jnp.einsum("bhqk,bhkd->bhqd", probs, v), cfg.score_spec)
    return o.swapaxes(1, 2).reshape(b, s, -1) @ w["o"]


def layer(cfg, mesh, x, w):
    w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
    x = pin(mesh, x, P("data", "model", None))
    x = x + attention(cfg, mesh, rms(x, w["n1"]), w)
    h = rms(x, w["n2"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def loss_fn(cfg, mesh, params, tokens):
    x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]

    @jax.checkpoint
    def body(x, w):
        return layer(cfg, mesh, x, w), None

    x, _ = jax.lax.scan(body, x, params["layers"])
    logits = jnp.einsum("bsd,vd->bsv", x, params["embed"].astype(x.dtype)).astype(jnp.float32)
    logits = pin(mesh, logits, P("data", "model", None))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def build(devices, cfg):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "model"))
    d, n, f = cfg.hidden, cfg.layers, cfg.ff
    hd = cfg.heads * cfg.head_dim

    def struct(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    zero3 = (None, ("data", "model"), None)
    params = {
        "embed": struct((cfg.vocab, d), ("data", "model")),
        "layers": {
            "q": struct((n, d, hd), *zero3), "k": struct((n, d, hd), *zero3), "v": struct((n, d, hd), *zero3),
            "o": struct((n, hd, d), *zero3), "gate": struct((n, d, f), *zero3), "up": struct((n, d, f), *zero3),
            "down": struct((n, f, d), *zero3), "n1": struct((n, d)), "n2": struct((n, d)),
        },
    }
    shardings = jax.tree.map(lambda p: p.sharding, params)

    def step(params, tokens):
        loss, g = jax.value_and_grad(lambda p: loss_fn(cfg, mesh, p, tokens))(params)
        return jax.tree.map(lambda p, g: p - 1e-3 * jnp.sign(g), params, g), loss

    tokens = struct((cfg.batch, cfg.seq + 1), "data", dtype=jnp.int32)
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None)), (params, tokens)


def make_faulty(devices):
    return build(devices, SmolConfig())


def make_fixed(devices):
    return build(devices, SmolConfig(score_spec=QUERY_PARALLEL))
