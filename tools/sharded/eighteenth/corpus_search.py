# mypy: ignore-errors
"""Clean. Exact maximum-inner-product search: the corpus is split over all sixteen chips, the queries are
whole by choice (half a megabyte), only the short candidate lists are exchanged and merged.

A search service: the index is a pytree of int8 codes and per-row scales, with a small one beside it for
the recent documents; the scan over pieces of the local shard keeps a running top-k, then a butterfly
merge over the two mesh axes.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ROWS = ("rack", "slot")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["codes", "scales", "tags"], meta_fields=[]
)
@dataclasses.dataclass
class Index:
    codes: jax.Array  # (corpus, dim) int8
    scales: jax.Array  # (corpus,) float32, symmetric quantisation
    tags: jax.Array  # (corpus,) int32, for filtering


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["score", "row"], meta_fields=[]
)
@dataclasses.dataclass
class Hits:
    score: jax.Array
    row: jax.Array

    def best(self, k):
        score, at = lax.top_k(self.score, k)
        return Hits(score, jnp.take_along_axis(self.row, at, axis=-1))

    def join(self, other):
        return Hits(
            jnp.concatenate([self.score, other.score], -1), jnp.concatenate([self.row, other.row], -1)
        )


@dataclasses.dataclass(frozen=True)
class Search:
    corpus: int = 8_388_608
    dim: int = 256
    queries: int = 512
    piece: int = 16_384
    k: int = 64

    @property
    def index_shape(self):
        return Index(
            codes=jax.ShapeDtypeStruct((self.corpus, self.dim), jnp.int8),
            scales=jax.ShapeDtypeStruct((self.corpus,), jnp.float32),
            tags=jax.ShapeDtypeStruct((self.corpus,), jnp.int32),
        )

    def score_piece(self, queries, wanted, piece):
        dots = jnp.einsum("qd,nd->qn", queries, piece.codes, preferred_element_type=jnp.int32)
        allowed = (piece.tags[None, :] & wanted[:, None]) != 0
        return jnp.where(allowed, dots * piece.scales, -jnp.inf)

    def scan_shard(self, index, queries, wanted):
        """Running top-k of this chip's rows; row numbers are local here."""
        pieces = index.codes.shape[0] // self.piece

        def visit(i, hits):
            piece = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, i * self.piece, self.piece), index)
            score = self.score_piece(queries, wanted, piece)
            score, at = lax.top_k(score, self.k)
            return hits.join(Hits(score, at.astype(jnp.int32) + i * self.piece)).best(self.k)

        empty = Hits(
            jnp.full((self.queries, self.k), -jnp.inf, jnp.float32),
            jnp.zeros((self.queries, self.k), jnp.int32),
        )
        return lax.fori_loop(0, pieces, visit, empty)

    def merge(self, hits, axis):
        """log2(n) exchanges of k candidates with the partner across `axis`."""
        n = lax.axis_size(axis)
        stride = 1
        while stride < n:
            swap = [(i, i ^ stride) for i in range(n)]
            theirs = jax.tree.map(lambda a: lax.ppermute(a, axis, swap), hits)
            hits = hits.join(theirs).best(self.k)
            stride *= 2
        return hits

    def __call__(self, index, recent, queries, wanted):
        """Rows of `recent` are numbered after those of `index`."""
        # the scale of a query does not change its ranking: eight bits of the direction are enough
        top = jnp.max(jnp.abs(queries), axis=-1, keepdims=True)
        q = jnp.round(127.0 * queries / jnp.maximum(top, 1e-6)).astype(jnp.int8)
        hits, start = None, 0
        for part in (index, recent):
            found = self.scan_shard(part, q, wanted)
            rows = part.codes.shape[0]
            found = Hits(found.score, found.row + start + lax.axis_index(ROWS) * rows)
            hits = found if hits is None else hits.join(found).best(self.k)
            start += rows * lax.axis_size(ROWS)
        for axis in ROWS[::-1]:
            hits = self.merge(hits, axis)
        return hits


def make_clean(devices):
    search = Search()
    mesh = Mesh(np.array(devices).reshape(4, 4), ROWS)
    by_row = Index(codes=P(ROWS), scales=P(ROWS), tags=P(ROWS))

    step = jax.shard_map(
        search,
        mesh=mesh,
        in_specs=(by_row, by_row, P(), P()),
        out_specs=Hits(P(), P()),
        check_vma=False,
    )

    def put(x, spec):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    index = jax.tree.map(put, search.index_shape, by_row)
    recent = jax.tree.map(put, dataclasses.replace(search, corpus=16 * search.piece).index_shape, by_row)
    queries = put(jax.ShapeDtypeStruct((search.queries, search.dim), jnp.float32), P())
    wanted = put(jax.ShapeDtypeStruct((search.queries,), jnp.int32), P())
    return jax.jit(step), (index, recent, queries, wanted)
