# mypy: ignore-errors
"""Fault: replicated. The passage embeddings come back whole on every chip because the job asks for an empty output
sharding; the encoder computes them split over all sixteen chips, and the writer takes shards."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, FF, LAYERS, OUT = 32_768, 384, 1536, 3, 256
CHUNKS, PASSAGES, LENGTH = 32, 4096, 32


def weight_structs(sharding):
    def w(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    return {
        "embed": w(VOCAB, DIM),
        "layers": {
            "mix": w(LAYERS, LENGTH, LENGTH),
            "up": w(LAYERS, DIM, FF),
            "down": w(LAYERS, FF, DIM),
        },
        "project": w(DIM, OUT),
    }


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def encode_chunk(weights, tokens):
    """Mixer encoder, mean pooled and normalised: (passages, length) -> (passages, OUT)."""
    x = jnp.take(weights["embed"], tokens, axis=0)

    def layer(x, w):
        x = x + jnp.einsum("bld,lm->bmd", rms(x), w["mix"])
        x = x + jax.nn.gelu(rms(x) @ w["up"]) @ w["down"]
        return x, None

    x, _ = jax.lax.scan(layer, x, weights["layers"])
    mask = (tokens != 0)[..., None]
    pooled = jnp.sum(jnp.where(mask, x, 0), axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)
    out = (pooled.astype(x.dtype) @ weights["project"]).astype(jnp.float32)
    return out / (jnp.linalg.norm(out, axis=-1, keepdims=True) + 1e-6)


def build_index(weights, tokens):
    """Embeds all chunks one after the other; the weights are small and held by every chip."""
    _, vectors = jax.lax.scan(lambda c, t: (c, encode_chunk(weights, t)), None, tokens)
    centroid = jnp.mean(vectors, axis=(0, 1))
    return vectors, centroid


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("host", "chip"))
    everywhere = NamedSharding(mesh, P())
    by_passage = NamedSharding(mesh, P(None, ("host", "chip"), None))
    job = jax.jit(
        build_index,
        in_shardings=(everywhere, by_passage),
        out_shardings=(everywhere, everywhere),  # FAULT
    )
    tokens = jax.ShapeDtypeStruct((CHUNKS, PASSAGES, LENGTH), jnp.int32, sharding=by_passage)
    return job, (weight_structs(everywhere), tokens)
