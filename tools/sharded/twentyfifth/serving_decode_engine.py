# mypy: ignore-errors
"""Fault: donated. The shardings of what a step returns are all made with the rules for one-token activations, in which
positions are not split; the donated cache is split along them, so that the returned cache has another sharding and
cannot take the donated one's place.

One decoding step of a language model server: grouped-query attention against a preallocated key/value cache, requests
over one axis of the mesh, positions over another, heads over the third."""
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

MODEL = SimpleNamespace(layers=12, width=1024, heads=16, kv_heads=8, head_dim=128, hidden=4096, vocab=32768)
SLOTS, LENGTH = 32, 2048

# arrays that stay on the chips between steps
STORED = {"layers": None, "slots": "batch", "positions": "context", "width": None, "head_dim": None,
          "heads": "tensor", "kv_heads": "tensor", "hidden": ("context", "tensor"), "vocab": ("context", "tensor")}
# activations of one step: a single position, which nothing can split
STEP = {**STORED, "positions": None}

WEIGHTS = {
    "query": (("layers", "width", "heads", "head_dim"), (MODEL.layers, MODEL.width, MODEL.heads, MODEL.head_dim)),
    "key": (("layers", "width", "kv_heads", "head_dim"), (MODEL.layers, MODEL.width, MODEL.kv_heads, MODEL.head_dim)),
    "value": (("layers", "width", "kv_heads", "head_dim"), (MODEL.layers, MODEL.width, MODEL.kv_heads, MODEL.head_dim)),
    "output": (("layers", "heads", "head_dim", "width"), (MODEL.layers, MODEL.heads, MODEL.head_dim, MODEL.width)),
    "up": (("layers", "width", "hidden"), (MODEL.layers, MODEL.width, MODEL.hidden)),
    "gate": (("layers", "width", "hidden"), (MODEL.layers, MODEL.width, MODEL.hidden)),
    "down": (("layers", "hidden", "width"), (MODEL.layers, MODEL.hidden, MODEL.width)),
    "scales": (("layers", None, "width"), (MODEL.layers, 2, MODEL.width)),
}
CACHE = ("layers", "slots", "kv_heads", "positions", "head_dim")


def norm(x, scale):
    power = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * lax.rsqrt(power + 1e-6) * scale).astype(x.dtype)


def attend(q, keys, values, lengths):
    """One query per slot; `keys` and `values` are [slots, kv_heads, positions, head_dim]."""
    q = q.reshape(q.shape[0], MODEL.kv_heads, -1, MODEL.head_dim)
    scores = jnp.einsum("bgrd,bgsd->bgrs", q, keys).astype(jnp.float32) * MODEL.head_dim ** -0.5
    seen = jnp.arange(keys.shape[2])[None, :] <= lengths[:, None]
    weights = jax.nn.softmax(jnp.where(seen[:, None, None, :], scores, -1e30), axis=-1).astype(values.dtype)
    return jnp.einsum("bgrs,bgsd->bgrd", weights, values).reshape(q.shape[0], MODEL.heads, MODEL.head_dim)


def write(cache, index, new, position):
    """Puts `new` [slots, kv_heads, head_dim] at `position` of layer `index`; returns the cache and that layer."""
    old = lax.dynamic_index_in_dim(cache, index, keepdims=False)
    here = (jnp.arange(old.shape[2]) == position)[None, None, :, None]
    mine = jnp.where(here, new[:, :, None, :], old)
    return lax.dynamic_update_index_in_dim(cache, mine, index, axis=0), mine


def layer(carry, scanned):
    x, keys, values, position, lengths = carry
    index, w = scanned
    h = norm(x, w["scales"][0])
    q = jnp.einsum("be,ehd->bhd", h, w["query"])
    k = jnp.einsum("be,ehd->bhd", h, w["key"])
    v = jnp.einsum("be,ehd->bhd", h, w["value"])
    keys, my_keys = write(keys, index, k, position)
    values, my_values = write(values, index, v, position)
    x = x + jnp.einsum("bhd,hde->be", attend(q, my_keys, my_values, lengths), w["output"])
    h = norm(x, w["scales"][1])
    x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return (x, keys, values, position, lengths), None


def decode(weights, embedding, cache, tokens, position, lengths):
    """The slots run in step: every one writes at `position`, and sees its own last `lengths` entries."""
    x = jnp.take(embedding, tokens, axis=0)
    start = (x, cache["keys"], cache["values"], position, lengths)
    (x, keys, values, _, _), _ = lax.scan(layer, start, (jnp.arange(MODEL.layers, dtype=jnp.int32), weights))
    logits = jnp.einsum("be,ve->bv", x, embedding)
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), {"keys": keys, "values": values}


class Engine:
    def __init__(self, mesh):
        self.mesh = mesh

    def sharding(self, *names, rules=STORED):
        return NamedSharding(self.mesh, P(*(rules.get(name) for name in names)))

    def struct(self, names, shape, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self.sharding(*names))

    def arguments(self):
        weights = {name: self.struct(*entry) for name, entry in WEIGHTS.items()}
        embedding = self.struct(("vocab", "width"), (MODEL.vocab, MODEL.width))
        shape = (MODEL.layers, SLOTS, MODEL.kv_heads, LENGTH, MODEL.head_dim)
        cache = {part: self.struct(CACHE, shape) for part in ("keys", "values")}
        return (weights, embedding, cache, self.struct(("slots",), (SLOTS,), jnp.int32),
                self.struct((), (), jnp.int32), self.struct(("slots",), (SLOTS,), jnp.int32))

    def compiled_step(self):
        tokens = self.sharding("slots", rules=STEP)
        cache = self.sharding(*CACHE, rules=STEP)  # FAULT
        out = (tokens, {"keys": cache, "values": cache})
        return jax.jit(decode, donate_argnums=(2,), out_shardings=out)


def make_faulty(devices):
    engine = Engine(Mesh(np.asarray(devices).reshape(2, 2, 4), ("batch", "context", "tensor")))
    return engine.compiled_step(), engine.arguments()
