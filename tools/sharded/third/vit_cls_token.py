# mypy: ignore-errors
"""Fault: dropped. A ViT wants its residual stream split over tokens, but 1 + 1024 tokens do not divide by 4 and the helper quietly drops the axis."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
L, D, H, F, PATCH, TOKENS, B = 10, 1024, 16, 4096, 768, 1024, 32


def constrain(mesh, x, *axes):
    kept = [a if a is not None and n % mesh.shape[a] == 0 else None for n, a in zip(x.shape, axes)]  # FAULT
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*kept)))  # FAULT


def layer_norm(x, g):
    x32 = x.astype(jnp.float32)
    x32 = x32 - jnp.mean(x32, -1, keepdims=True)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def block(mesh, w, x):
    b, t, _ = x.shape
    h = layer_norm(x, w["g1"])
    q, k, v = jnp.einsum("btd,dchk->cbthk", h, w["qkv"])
    q, k, v = (constrain(mesh, a, "data", None, "model", None) for a in (q, k, v))
    s = jnp.einsum("bqhk,bthk->bhqt", q, k) / 8
    a = jax.nn.softmax(s.astype(jnp.float32)).astype(x.dtype)
    x = x + jnp.einsum("bhqt,bthk,hkd->bqd", a, v, w["out"])
    h = jax.nn.gelu(layer_norm(x, w["g2"]) @ w["up"])
    return x + constrain(mesh, h, "data", None, "model") @ w["down"]


def loss_fn(params, patches, labels, mesh, stream):
    x = patches @ params["patch"]
    cls = jnp.broadcast_to(params["cls"], (x.shape[0], 1, D))
    x = jnp.concatenate([cls, x], 1) + params["pos"]

    @jax.checkpoint
    def body(x, w):
        x = constrain(mesh, x, *stream)  # FAULT
        return block(mesh, w, x), None

    x, _ = lax.scan(body, constrain(mesh, x, *stream), params["blocks"])  # FAULT
    logits = (x[:, 0] @ params["head"]).astype(jnp.float32)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1))


def build(devices, stream):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    S = lambda shape, *spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    params = {
        "patch": S((PATCH, D), None, "model"),
        "cls": S((1, 1, D)),
        "pos": S((1, TOKENS + 1, D)),
        "head": S((D, 1000), "model"),
        "blocks": {
            "g1": S((L, D)),
            "g2": S((L, D)),
            "qkv": S((L, D, 3, H, D // H), None, "data", None, "model"),
            "out": S((L, H, D // H, D), None, "model", None, "data"),
            "up": S((L, D, F), None, "data", "model"),
            "down": S((L, F, D), None, "model", "data"),
        },
    }

    def step(params, patches, labels):
        loss, g = jax.value_and_grad(loss_fn)(params, patches, labels, mesh, stream)
        return jax.tree.map(lambda p, d: p - 1e-3 * d, params, g), loss

    outs = (jax.tree.map(lambda s: s.sharding, params), NamedSharding(mesh, P()))
    args = (params, S((B, TOKENS, PATCH), "data"), S((B,), "data", dtype=jnp.int32))
    return jax.jit(step, donate_argnums=0, out_shardings=outs), args


def make_faulty(devices):
    return build(devices, ("data", "model", None))  # FAULT


def make_fixed(devices):
    return build(devices, ("data", None, "model"))
