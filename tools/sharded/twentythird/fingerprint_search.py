# mypy: ignore-errors
"""Clean. Similarity search in a library of molecules: fingerprints packed into words, split over the devices, each of
which keeps the best of its part; the few candidates are merged at the end."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

MOLECULES = 1 << 23
WORDS = 32
QUERIES = 128
PIECE = 1024
BEST = 50

LIBRARY = P("part", None)
BITS = P("part")


def tanimoto(queries, query_bits, piece, piece_bits):
    """Similarities of all queries to one piece of the library, word by word."""
    def word(i, shared):
        both = queries[:, i][:, None] & piece[:, i][None, :]
        return shared + lax.population_count(both).astype(jnp.int32)

    shared = lax.fori_loop(0, WORDS, word, lax.pcast(
        jnp.zeros((queries.shape[0], piece.shape[0]), jnp.int32), "part", to="varying"
    ))
    union = query_bits[:, None] + piece_bits[None, :] - shared
    return shared / jnp.maximum(union, 1)


def merge(scores, names):
    best, where = lax.top_k(scores, BEST)
    return best, jnp.take_along_axis(names, where, axis=1)


def search_local(queries, library, bits):
    query_bits = lax.population_count(queries).astype(jnp.int32).sum(axis=1)
    offset = lax.axis_index("part") * library.shape[0]

    def look(best, start):
        scores, names = best
        piece = lax.dynamic_slice_in_dim(library, start, PIECE)
        piece_bits = lax.dynamic_slice_in_dim(bits, start, PIECE)
        found = tanimoto(queries, query_bits, piece, piece_bits)
        here = jnp.broadcast_to(offset + start + jnp.arange(PIECE), found.shape)
        return merge(jnp.concatenate([scores, found], 1), jnp.concatenate([names, here], 1)), None

    nothing = (jnp.full((QUERIES, BEST), -1.0), jnp.full((QUERIES, BEST), -1))
    nothing = jax.tree.map(lambda x: lax.pcast(x, "part", to="varying"), nothing)
    (scores, names), _ = lax.scan(look, nothing, jnp.arange(0, library.shape[0], PIECE))
    return scores, names


def search(queries, library, bits, *, mesh):
    local = jax.shard_map(
        search_local,
        mesh=mesh,
        in_specs=(P(), LIBRARY, BITS),
        out_specs=(P(None, "part"), P(None, "part")),
    )
    scores, names = local(queries, library, bits)
    scores, names = merge(scores, names)
    return jnp.where(scores > 0.3, names, -1), scores


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("part",))

    def array(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    arguments = (
        array((QUERIES, WORDS), jnp.uint32, P()),
        array((MOLECULES, WORDS), jnp.uint32, LIBRARY),
        array((MOLECULES,), jnp.int32, BITS),
    )
    return jax.jit(partial(search, mesh=mesh), out_shardings=NamedSharding(mesh, P())), arguments
