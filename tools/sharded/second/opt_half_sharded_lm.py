# mypy: ignore-errors
"""Fault: optimizer. A scanned decoder on 4 x 4 chips: weights over both axes, but the momentum buffers only follow the `data` axis and repeat over `model`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
L, D, F, V = 12, 1024, 4096, 32768
SHAPES = {"wqkv": (L, D, 3 * D), "wo": (L, D, D), "up": (L, D, F), "down": (L, F, D)}


def loss_fn(params, tokens, mesh):
    x = params["embed"][tokens]
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))

    @jax.checkpoint
    def layer(x, w):
        b, t, _ = x.shape
        q, k, v = (a.reshape(b, t, 16, 64) for a in jnp.split(x @ w["wqkv"], 3, -1))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 8
        a = jax.nn.softmax(jnp.where(jnp.tri(t, dtype=bool), s, -1e9)).astype(x.dtype)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, D) @ w["wo"]
        x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))), None

    x, _ = lax.scan(layer, x, {n: params[n] for n in SHAPES})
    return jnp.mean(jax.nn.logsumexp((x @ params["embed"].T).astype(jnp.float32), -1))


def program(devices, momentum_spec):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    arr = lambda shape, *spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    params = {n: arr(s, None, "data", "model") for n, s in SHAPES.items()} | {"embed": arr((V, D), "model", "data")}
    momentum = {n: arr(s, *momentum_spec, dtype=jnp.float32) for n, s in SHAPES.items()} | {"embed": arr((V, D), "model", "data", dtype=jnp.float32)}  # FAULT

    def step(params, momentum, tokens):
        g = jax.grad(loss_fn)(params, tokens, mesh)
        momentum = jax.tree.map(lambda m, d: 0.95 * m + d.astype(jnp.float32), momentum, g)
        return jax.tree.map(lambda p, m: (p - 0.01 * m).astype(p.dtype), params, momentum), momentum

    outs = jax.tree.map(lambda s: s.sharding, (params, momentum))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=outs), (params, momentum, arr((16, 512), "data", dtype=jnp.int32))


def make_faulty(devices):
    return program(devices, (None, "data"))  # FAULT


def make_fixed(devices):
    return program(devices, (None, "data", "model"))
