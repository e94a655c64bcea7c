# mypy: ignore-errors
"""Fault: padding. Nine attention heads are split over eight devices, so queries, keys, values and scores are padded
to sixteen heads."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CFG = dict(d_model=576, n_heads=9, d_ff=1536, n_layers=2, vocab=4096, batch=2, seq=2048)


def named(mesh, *spec):
    return NamedSharding(mesh, P(*spec))


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def rotary(x):
    n, half = x.shape[2], x.shape[-1] // 2
    theta = jnp.arange(n)[:, None] * (10000.0 ** (-jnp.arange(half) / half))[None, :]
    x1, x2 = x[..., :half], x[..., half:]
    return jnp.concatenate([x1 * jnp.cos(theta) - x2 * jnp.sin(theta), x1 * jnp.sin(theta) + x2 * jnp.cos(theta)], -1)


def split_heads(x, heads):
    b, s, d = x.shape
    return x.reshape(b, s, heads, d // heads).transpose(0, 2, 1, 3)


def attend(q, k, v):
    s = q.shape[2]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    causal = jnp.arange(s)[:, None] >= jnp.arange(s)[None, :]
    probs = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", probs, v)


def attention_by_heads(mesh, p, x):
    """Megatron style: each device has its own heads."""
    heads = named(mesh, None, "model", None, None)  # FAULT
    q, k, v = (split_heads(x @ p[n], CFG["n_heads"]) for n in ("wq", "wk", "wv"))
    q, k, v = (jax.lax.with_sharding_constraint(t, heads) for t in (rotary(q), rotary(k), v))  # FAULT
    out = attend(q, k, v)
    out = jax.lax.with_sharding_constraint(out, heads)  # FAULT
    b, h, s, d = out.shape
    return out.transpose(0, 2, 1, 3).reshape(b, s, h * d) @ p["wo"]


def attention_by_queries(mesh, p, x):
    """Each device has a slice of the query positions of every head."""
    rows, whole = named(mesh, None, None, "model", None), named(mesh)
    q, k, v = (split_heads(x @ p[n], CFG["n_heads"]) for n in ("wq", "wk", "wv"))
    q = jax.lax.with_sharding_constraint(rotary(q), rows)
    k, v = (jax.lax.with_sharding_constraint(t, whole) for t in (rotary(k), v))
    out = jax.lax.with_sharding_constraint(attend(q, k, v), rows)
    b, h, s, d = out.shape
    out = out.transpose(0, 2, 1, 3).reshape(b, s, h * d)
    return jax.lax.with_sharding_constraint(out, named(mesh, None, "model", None)) @ p["wo"]


def transformer(mesh, attention, params, tokens):
    seq = named(mesh, None, "model", None)
    x = jax.lax.with_sharding_constraint(params["embed"][tokens], seq)
    for p in params["layers"]:
        x = x + attention(mesh, p, rms_norm(x, p["norm1"]))
        x = jax.lax.with_sharding_constraint(x, seq)
        h = rms_norm(x, p["norm2"])
        h = jax.nn.silu(h @ p["gate"]) * (h @ p["up"])
        x = jax.lax.with_sharding_constraint(x + h @ p["down"], seq)
    return rms_norm(x, params["norm"]) @ params["embed"].T


def loss_fn(mesh, attention, params, batch):
    logits = transformer(mesh, attention, params, batch["inputs"])
    logits = jax.lax.with_sharding_constraint(logits, named(mesh, None, "model", None))
    ll = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["targets"][..., None], axis=-1)
    return -jnp.mean(ll)


def structs(mesh):
    def w(*shape, spec=()):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=named(mesh, *spec))

    d, f = CFG["d_model"], CFG["d_ff"]
    layer = {n: w(d, d, spec=("model", None)) for n in ("wq", "wk", "wv", "wo")}
    layer.update(gate=w(d, f, spec=("model", None)), up=w(d, f, spec=("model", None)), down=w(f, d, spec=("model", None)))
    layer.update(norm1=w(d), norm2=w(d))
    params = {"embed": w(CFG["vocab"], d, spec=("model", None)), "norm": w(d)}
    params["layers"] = [dict(layer) for _ in range(CFG["n_layers"])]
    tok = jax.ShapeDtypeStruct((CFG["batch"], CFG["seq"]), jnp.int32, sharding=named(mesh))
    return params, {"inputs": tok, "targets": tok}


def build(devices, attention):
    mesh = Mesh(np.array(devices), ("model",))

    def step(params, batch):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, mesh, attention))(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    return jax.jit(step, donate_argnums=(0,)), structs(mesh)


def make_faulty(devices):
    return build(devices, attention_by_heads)


def make_fixed(devices):
    return build(devices, attention_by_queries)
