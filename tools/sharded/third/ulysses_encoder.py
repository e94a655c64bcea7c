# mypy: ignore-errors
"""Fault: reshard. Attention over a long sequence goes from a split over tokens to a split over heads, but the projected tensor is first made whole on all 16 chips."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
T, H, K, LAYERS = 16384, 16, 128, 2
DIM = H * K


class Layout:
    def __init__(self, mesh):
        self.mesh = mesh

    def put(self, x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*spec)))

    def tokens(self, x):
        return self.put(x, "sp")

    def heads(self, x):
        return self.put(x, *[None] * (x.ndim - 2), "sp", None)

    def tokens_to_heads(self, x):
        return self.heads(x)


class SafeLayout(Layout):
    def tokens_to_heads(self, x):
        return self.heads(self.put(x))  # FAULT


def attention(qkv):
    q, k, v = qkv[:, 0], qkv[:, 1], qkv[:, 2]

    def chunk(q):
        s = jnp.einsum("qhk,thk->hqt", q, k).astype(jnp.float32) * K**-0.5
        return jnp.einsum("hqt,thk->qhk", jax.nn.softmax(s).astype(q.dtype), v)

    return jax.lax.map(chunk, q.reshape(T // 256, 256, H, K)).reshape(T, H, K)


def encode(weights, x, layout):
    for w in weights:
        qkv = layout.tokens(jnp.einsum("td,dchk->tchk", x, w["qkv"]))
        qkv = layout.tokens_to_heads(qkv)  # FAULT
        o = layout.tokens(layout.heads(attention(qkv)))
        x = x + jnp.einsum("thk,hkd->td", o, w["o"])
        x = layout.tokens(x + jax.nn.gelu(x @ w["up"]) @ w["down"])
    return x


def build(devices, layout_class):
    mesh = Mesh(np.array(devices), ("sp",))
    layout = layout_class(mesh)
    arr = lambda shape, *spec: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))
    shapes = {"qkv": (DIM, 3, H, K), "o": (H, K, DIM), "up": (DIM, 2 * DIM), "down": (2 * DIM, DIM)}
    weights = [{n: arr(s, "sp") for n, s in shapes.items()} for _ in range(LAYERS)]
    return jax.jit(lambda weights, x: encode(weights, x, layout), donate_argnums=1), (weights, arr((T, DIM), "sp"))


def make_faulty(devices):
    return build(devices, SafeLayout)


def make_fixed(devices):
    return build(devices, Layout)
