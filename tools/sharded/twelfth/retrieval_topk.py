# mypy: ignore-errors
"""Clean. Exact nearest neighbours: the corpus is divided over all devices, the queries are
whole; each device scans its part in chunks and only the best of each device are gathered."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CORPUS, DIM, QUERIES, BEST = 1 << 21, 256, 256, 32
CHUNKS = 16
AXIS = "corpus"


def merge(scores, ids):
    """The best of the candidates in the last axis."""
    top, where = jax.lax.top_k(scores, BEST)
    return top, jnp.take_along_axis(ids, where, axis=-1)


def local_best(queries, part, inverse_norms, first_id):
    rows = part.shape[0] // CHUNKS

    def chunk(best, i):
        vectors = jax.lax.dynamic_slice_in_dim(part, i * rows, rows)
        scale = jax.lax.dynamic_slice_in_dim(inverse_norms, i * rows, rows)
        scores = jnp.einsum("qd,nd->qn", queries, vectors, preferred_element_type=jnp.float32)
        top, where = jax.lax.top_k(scores * scale, BEST)
        ids = first_id + i * rows + where
        both = (jnp.concatenate([best[0], top], 1), jnp.concatenate([best[1], ids], 1))
        return merge(*both), None

    nothing = (
        jnp.full((queries.shape[0], BEST), -jnp.inf, jnp.float32),
        jnp.zeros((queries.shape[0], BEST), jnp.int32),
    )
    best, _ = jax.lax.scan(chunk, nothing, jnp.arange(CHUNKS))
    return best


def search(queries, part, inverse_norms):
    first_id = jax.lax.axis_index(AXIS) * part.shape[0]
    scores, ids = local_best(queries, part, inverse_norms, first_id)
    scores, ids = (jax.lax.all_gather(x, AXIS, axis=1, tiled=True) for x in (scores, ids))
    return merge(scores, ids)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(16), (AXIS,))
    by_vector = NamedSharding(mesh, P(AXIS))
    corpus = jax.ShapeDtypeStruct((CORPUS, DIM), jnp.bfloat16, sharding=by_vector)
    inverse_norms = jax.ShapeDtypeStruct((CORPUS,), jnp.float32, sharding=by_vector)
    queries = jax.ShapeDtypeStruct(
        (QUERIES, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, P())
    )
    sharded = functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P(AXIS), P(AXIS)),
        out_specs=(P(), P()),
        check_vma=False,
    )
    return jax.jit(sharded(search)), (queries, corpus, inverse_norms)
