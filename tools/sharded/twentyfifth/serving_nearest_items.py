# mypy: ignore-errors
"""Clean. Exact nearest-item search behind a recommendation service: the item vectors lie in four parts, each chip
scans its own part in blocks with a running top list, and only the short lists are collected and merged."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

ITEMS = 3 * 2 ** 20
FEATURES = 128
DIMENSIONS = 96
QUERIES = 512
BLOCK = 4096
TOP = 100


def encode(tower, features):
    hidden = jax.nn.relu(features @ tower["in"] + tower["bias"])
    vectors = hidden @ tower["out"]
    return (vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)).astype(jnp.bfloat16)


def merge(scores, ids, k):
    best, where = lax.top_k(scores, k)
    return best, jnp.take_along_axis(ids, where, axis=-1)


def local_search(queries, items, offsets, blocked):
    """Best items of this device's part. `offsets` are popularity corrections, `blocked` items are never shown."""
    part = lax.axis_index("part")
    count = items.shape[0]

    def block(best, start):
        vectors = lax.dynamic_slice_in_dim(items, start, BLOCK)
        scores = jnp.einsum("qd,nd->qn", queries, vectors, preferred_element_type=jnp.float32)
        scores = scores + lax.dynamic_slice_in_dim(offsets, start, BLOCK)[None, :]
        scores = jnp.where(lax.dynamic_slice_in_dim(blocked, start, BLOCK)[None, :], -jnp.inf, scores)
        block_scores, where = lax.top_k(scores, TOP)
        ids = part * count + start + where
        scores = jnp.concatenate([best[0], block_scores], axis=-1)
        return merge(scores, jnp.concatenate([best[1], ids], axis=-1), TOP), None

    empty = (jnp.full((queries.shape[0], TOP), -jnp.inf, jnp.float32), jnp.zeros((queries.shape[0], TOP), jnp.int32))
    empty = jax.tree.map(lambda a: lax.pcast(a, ("part",), to="varying"), empty)
    best, _ = lax.scan(block, empty, jnp.arange(0, count, BLOCK, dtype=jnp.int32))
    # [queries, TOP] per device to [queries, parts * TOP]: a few MiB at most
    scores, ids = (lax.all_to_all(b, "part", split_axis=0, concat_axis=1, tiled=True) for b in best)
    return merge(scores, ids, TOP)


def make_search(mesh):
    inner = jax.shard_map(
        local_search,
        mesh=mesh,
        in_specs=(P(), P("part"), P("part"), P("part")),
        out_specs=(P("part"), P("part")),
    )

    def search(tower, features, items, offsets, blocked):
        queries = encode(tower, features)
        scores, ids = inner(queries, items, offsets, blocked)
        return {"scores": scores, "ids": ids}

    return search


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4), ("part",))
    split = NamedSharding(mesh, P("part"))
    small = NamedSharding(mesh, P())

    def array(shape, sharding, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    tower = {"in": array((FEATURES, 256), small), "bias": array((256,), small), "out": array((256, DIMENSIONS), small)}
    features = array((QUERIES, FEATURES), split)
    items = array((ITEMS, DIMENSIONS), split, jnp.bfloat16)
    offsets = array((ITEMS,), split)
    blocked = array((ITEMS,), split, jnp.bool_)
    search = jax.jit(make_search(mesh), out_shardings={"scores": split, "ids": split})
    return search, (tower, features, items, offsets, blocked)
