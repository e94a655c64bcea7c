# mypy: ignore-errors
"""Fault: reshard. Sequence-split queries, keys and values become head-split by gathering the whole sequence with all heads and cutting the own heads out of it; an all_to_all would never hold the whole."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 8192, 16, 128
WIDTH = HEADS * HEAD_DIM
CHUNK = 512


def seq_to_heads(x):
    """[batch, length/n, heads, dim] -> [batch, length, heads/n, dim]"""
    mine = x.shape[2] // lax.axis_size("sp")
    x = lax.all_gather(x, "sp", axis=1, tiled=True)  # FAULT
    return lax.dynamic_slice_in_dim(x, lax.axis_index("sp") * mine, mine, axis=2)  # FAULT


def heads_to_seq(x):
    """[batch, length, heads/n, dim] -> [batch, length/n, heads, dim]"""
    return lax.all_to_all(x, "sp", split_axis=1, concat_axis=2, tiled=True)


def chunked_attention(q, k, v):
    """Attention in chunks of queries, so that scores stay small."""
    batch, length, heads, dim = q.shape
    chunks = q.reshape(batch, length // CHUNK, CHUNK, heads, dim).swapaxes(0, 1)

    def one(chunk):
        scores = jnp.einsum("bqhd,bkhd->bhqk", chunk, k) * dim**-0.5
        probs = jax.nn.softmax(scores.astype(jnp.float32)).astype(v.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", probs, v)

    return lax.map(one, chunks).swapaxes(0, 1).reshape(batch, length, heads, dim)


def attention_layer(weights, x):
    shape = (*x.shape[:2], HEADS, HEAD_DIM)
    q = seq_to_heads((x @ weights["q"]).reshape(shape))
    k = seq_to_heads((x @ weights["k"]).reshape(shape))
    v = seq_to_heads((x @ weights["v"]).reshape(shape))
    mixed = heads_to_seq(chunked_attention(q, k, v))
    return x + mixed.reshape(x.shape) @ weights["o"]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("sp",))
    sequence = P(None, "sp", None)
    layer = jax.shard_map(
        attention_layer,
        mesh=mesh,
        in_specs=(P(), sequence),
        out_specs=sequence,
    )
    weights = {
        name: jax.ShapeDtypeStruct(
            (WIDTH, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, P())
        )
        for name in ("q", "k", "v", "o")
    }
    x = jax.ShapeDtypeStruct(
        (BATCH, LENGTH, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, sequence)
    )
    return jax.jit(layer), (weights, x)
