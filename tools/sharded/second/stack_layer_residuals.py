# mypy: ignore-errors
"""Fault: stack. A scanned transformer on four chips whose layer ends in a constraint that names no axis: the residuals of every layer hold the whole batch on each chip."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
B, T, D, H, L = 128, 256, 512, 8, 10


class Layer(eqx.Module):
    qkv: jax.Array
    out: jax.Array
    up: jax.Array
    down: jax.Array

    def __call__(self, x):
        q, k, v = jnp.split(x @ self.qkv, 3, -1)
        heads = lambda a: a.reshape(*a.shape[:2], H, D // H)
        x = x + jax.nn.dot_product_attention(heads(q), heads(k), heads(v)).reshape(x.shape) @ self.out
        return x + jax.nn.silu(x @ self.up) @ self.down


def make(devices, activation_spec):
    mesh = Mesh(np.array(devices), ("fsdp",))
    arr = lambda shape, *spec: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))
    layers = Layer(arr((L, D, 3 * D), None, "fsdp"), arr((L, D, D), None, "fsdp"), arr((L, D, 4 * D), None, "fsdp"), arr((L, 4 * D, D), None, "fsdp"))

    def loss(layers, x):
        @jax.checkpoint
        def body(x, layer):
            y = layer(x)
            return jax.lax.with_sharding_constraint(y, NamedSharding(mesh, activation_spec)), None  # FAULT

        x, _ = jax.lax.scan(body, x, layers)  # FAULT
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def step(layers, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, jax.grad(loss)(layers, x))

    return jax.jit(step, donate_argnums=0, out_shardings=jax.tree.map(lambda a: a.sharding, layers)), (layers, arr((B, T, D), "fsdp"))


def make_faulty(devices):
    return make(devices, P(None, None, None))  # FAULT


def make_fixed(devices):
    return make(devices, P("fsdp", None, None))
