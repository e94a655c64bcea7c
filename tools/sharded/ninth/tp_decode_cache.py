# mypy: ignore-errors
"""Clean. One decoding step with tensor-parallel weights; the cache is split by batch and heads, donated, and comes back as it went in."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

BATCH, LENGTH, HEADS, DIM = 32, 4096, 16, 128
WIDTH = HEADS * DIM


def decode(weights, cache, x, position):
    q, k, v = (jnp.einsum("bd,dhk->bhk", x, weights[n]) for n in ("q", "k", "v"))
    zero = jnp.zeros((), jnp.int32)
    at = (zero, zero, position, zero)
    keys = jax.lax.dynamic_update_slice(cache["k"], k[:, :, None], at)
    values = jax.lax.dynamic_update_slice(cache["v"], v[:, :, None], at)
    scores = jnp.einsum("bhk,bhsk->bhs", q, keys).astype(jnp.float32) * DIM**-0.5
    scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9)
    probs = jax.nn.softmax(scores).astype(values.dtype)
    mixed = jnp.einsum("bhs,bhsk->bhk", probs, values)
    out = x + jnp.einsum("bhk,hkd->bd", mixed, weights["o"])
    return out, {"k": keys, "v": values}


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def struct(shape, *axes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(
            shape, dtype, sharding=NamedSharding(mesh, P(*axes))
        )

    projection = struct((WIDTH, HEADS, DIM), None, "model")
    weights = {"q": projection, "k": projection, "v": projection}
    weights["o"] = struct((HEADS, DIM, WIDTH), "model")
    half = struct((BATCH, HEADS, LENGTH, DIM), "data", "model")
    cache = {"k": half, "v": half}
    x = struct((BATCH, WIDTH), "data")
    position = struct((), dtype=jnp.int32)
    out = (x.sharding, jax.tree.map(lambda a: a.sharding, cache))
    return jax.jit(decode, donate_argnums=1, out_shardings=out), (weights, cache, x, position)
