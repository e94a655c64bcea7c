# mypy: ignore-errors
"""Clean. One decoding step with grouped queries: weights and cache split by head and by batch, the
donated cache comes back as it was."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, BATCH, LENGTH, KV_HEADS, GROUP, DIM = 4, 16, 4096, 4, 4, 128
WIDTH = KV_HEADS * GROUP * DIM

WEIGHTS = {
    "q": ((LAYERS, WIDTH, KV_HEADS, GROUP, DIM), P(None, None, "tp")),
    "k": ((LAYERS, WIDTH, KV_HEADS, DIM), P(None, None, "tp")),
    "v": ((LAYERS, WIDTH, KV_HEADS, DIM), P(None, None, "tp")),
    "o": ((LAYERS, KV_HEADS, GROUP, DIM, WIDTH), P(None, "tp")),
}
CACHE = ((LAYERS, BATCH, KV_HEADS, LENGTH, DIM), P(None, "dp", "tp"))


def decode(weights, cache, h, pos):
    visible = jnp.arange(LENGTH) <= pos
    keys, values = cache
    for i in range(LAYERS):
        w = {n: a[i] for n, a in weights.items()}
        q = jnp.einsum("bw,wkgd->bkgd", h, w["q"])
        k = jnp.einsum("bw,wkd->bkd", h, w["k"])
        v = jnp.einsum("bw,wkd->bkd", h, w["v"])
        keys = lax.dynamic_update_slice(keys, k[None, :, :, None], (i, 0, 0, pos, 0))
        values = lax.dynamic_update_slice(values, v[None, :, :, None], (i, 0, 0, pos, 0))
        scores = jnp.einsum("bkgd,bkld->bkgl", q, keys[i]).astype(jnp.float32) * DIM**-0.5
        probs = jax.nn.softmax(jnp.where(visible, scores, -1e30)).astype(h.dtype)
        mixed = jnp.einsum("bkgl,bkld->bkgd", probs, values[i])
        h = h + jnp.einsum("bkgd,kgdw->bw", mixed, w["o"])
    return (keys, values), h


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))

    def struct(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = {n: struct(*entry) for n, entry in WEIGHTS.items()}
    cache = (struct(*CACHE), struct(*CACHE))
    h = struct((BATCH, WIDTH), P("dp"))
    pos = struct((), P(), jnp.int32)
    out = ((cache[0].sharding, cache[1].sharding), h.sharding)
    return jax.jit(decode, donate_argnums=1, out_shardings=out), (weights, cache, h, pos)
