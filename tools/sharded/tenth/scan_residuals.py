# mypy: ignore-errors
"""Fault: stack. The layer loop carries activations that are whole along "model"; what it saves for the
backward pass, one per layer, is therefore four times what a split of the sequence would need."""
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, BATCH, SEQ, WIDTH, HEADS, FFN = 16, 16, 2048, 512, 8, 2048

PARAM_RULES = [
    (r"w[qkv]$", P(None, None, "model")),
    (r"wo$", P(None, "model", None)),
    (r"up$", P(None, None, "model")),
    (r"down$", P(None, "model", None)),
]


def spec_for(name):
    return next(spec for pattern, spec in PARAM_RULES if re.search(pattern, name))


def layer_norm(x):
    x32 = x.astype(jnp.float32)
    x32 = x32 - x32.mean(-1, keepdims=True)
    return (x32 * lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-5)).astype(x.dtype)


def linear_attention(p, x):
    split = lambda y: y.reshape(*y.shape[:2], HEADS, -1)
    q, k, v = (split(x @ p[n]) for n in ("wq", "wk", "wv"))
    q, k = jax.nn.softmax(q, -1), jax.nn.softmax(k, 1)
    context = jnp.einsum("bshd,bshe->bhde", k, v)
    out = jnp.einsum("bshd,bhde->bshe", q, context)
    return out.reshape(x.shape) @ p["wo"]


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    put = lambda x, *axes: lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def layer(x, p):
        x = put(x, "data", None, None)  # FAULT
        x = x + linear_attention(p, layer_norm(x))
        x = x + jax.nn.gelu(layer_norm(x) @ p["up"]) @ p["down"]
        return put(x, "data", None, None), None  # FAULT

    def loss_fn(params, x, target):
        x, _ = lax.scan(layer, x, params)
        return jnp.mean((x - target).astype(jnp.float32) ** 2)

    def step(params, x, target):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, target)
        return jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads), loss

    shapes = {n: (LAYERS, WIDTH, WIDTH) for n in ("wq", "wk", "wv", "wo")}
    shapes |= {"up": (LAYERS, WIDTH, FFN), "down": (LAYERS, FFN, WIDTH)}
    params = {
        n: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, spec_for(n)))
        for n, s in shapes.items()
    }
    acts = jax.ShapeDtypeStruct(
        (BATCH, SEQ, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, P("data", "model", None))
    )
    return jax.jit(step, donate_argnums=0), (params, acts, acts)
