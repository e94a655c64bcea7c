# mypy: ignore-errors
"""Fault: replicated. With two key/value heads and four chips the cache's layout falls back to P(), so every chip
holds the whole cache, though its batch dimension splits well.

Decoding step of a tensor-parallel server with grouped-query attention.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


class Spec(NamedTuple):
    width: int = 2048
    heads: int = 16
    kv_heads: int = 2
    head_dim: int = 128
    hidden: int = 8192
    vocab: int = 32768
    layers: int = 6
    slots: int = 32
    context: int = 4096


class Decoder:
    def __init__(self, spec, mesh):
        self.spec, self.mesh = spec, mesh

    def sharding(self, *axes):
        return NamedSharding(self.mesh, P(*axes))

    def weights(self):
        s = self.spec
        kv = s.kv_heads * s.head_dim

        def array(shape, *axes):
            return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=self.sharding(*axes))

        layer = lambda: {
            "wq": array((s.width, s.heads * s.head_dim), None, "tp"),
            "wkv": array((s.width, 2 * kv), "tp", None),
            "wo": array((s.heads * s.head_dim, s.width), "tp", None),
            "up": array((s.width, s.hidden), None, "tp"),
            "down": array((s.hidden, s.width), "tp", None),
        }
        return {"embed": array((s.vocab, s.width), "tp", None), "layers": [layer() for _ in range(s.layers)]}

    def cache_sharding(self):
        splits = self.spec.kv_heads % self.mesh.shape["tp"] == 0
        return self.sharding(None, "tp") if splits else self.sharding()  # FAULT

    def cache(self):
        s = self.spec
        shape = (s.slots, s.kv_heads, s.context, s.head_dim)
        entry = lambda: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=self.cache_sharding())  # FAULT
        return [(entry(), entry()) for _ in range(s.layers)]

    def attend(self, x, w, cache, position):
        s = self.spec
        q = (x @ w["wq"]).reshape(s.slots, s.kv_heads, s.heads // s.kv_heads, s.head_dim)
        k, v = jnp.split((x @ w["wkv"]).reshape(s.slots, 2 * s.kv_heads, 1, s.head_dim), 2, axis=1)
        keys = jax.lax.dynamic_update_slice_in_dim(cache[0], k, position, axis=2)
        values = jax.lax.dynamic_update_slice_in_dim(cache[1], v, position, axis=2)
        scores = jnp.einsum("bgnd,bgsd->bgns", q, keys) * s.head_dim**-0.5
        visible = jnp.arange(s.context) <= position
        probs = jax.nn.softmax(jnp.where(visible, scores.astype(jnp.float32), -1e30)).astype(x.dtype)
        out = jnp.einsum("bgns,bgsd->bgnd", probs, values).reshape(s.slots, -1)
        return out @ w["wo"], (keys, values)

    def step(self, weights, cache, tokens, position):
        x = weights["embed"][tokens]
        fresh = []
        for w, entry in zip(weights["layers"], cache):
            delta, entry = self.attend(self.norm(x), w, entry, position)
            x = x + delta
            x = x + jax.nn.gelu(self.norm(x) @ w["up"]) @ w["down"]
            fresh.append(entry)
        logits = self.norm(x) @ weights["embed"].T
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), fresh

    @staticmethod
    def norm(x):
        return (x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6)).astype(x.dtype)

    def compiled_step(self):
        cache_out = jax.tree.map(lambda entry: entry.sharding, self.cache())
        return jax.jit(self.step, donate_argnums=1, out_shardings=(self.sharding(), cache_out))


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4), ("tp",))
    decoder = Decoder(Spec(), mesh)
    tokens = jax.ShapeDtypeStruct((decoder.spec.slots,), jnp.int32, sharding=decoder.sharding())
    position = jax.ShapeDtypeStruct((), jnp.int32, sharding=decoder.sharding())
    return decoder.compiled_step(), (decoder.weights(), decoder.cache(), tokens, position)
