# mypy: ignore-errors
"""Clean. k-means over many local descriptors: the points are split, the few centroids are whole and summed up."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class KMeansConfig:
    points: int = 1 << 21
    dim: int = 64
    clusters: int = 256
    rounds: int = 5
    chunk: int = 8192


def nearest(points, centroids):
    """Index of the nearest centroid and the squared distance to it."""
    cross = points @ centroids.T
    square = jnp.sum(centroids * centroids, axis=-1)
    partial = square[None] - 2.0 * cross
    index = jnp.argmin(partial, axis=-1)
    return index, jnp.min(partial, axis=-1) + jnp.sum(points * points, axis=-1)


def make_clean(devices):
    cfg = KMeansConfig()
    mesh = Mesh(np.array(devices), ("points",))

    def local_sums(points, centroids):
        """Sums of this device's points per cluster, in chunks, so that the distances stay small."""

        def one(carry, chunk):
            sums, counts, cost = carry
            index, distance = nearest(chunk, centroids)
            onehot = jax.nn.one_hot(index, cfg.clusters, dtype=chunk.dtype)
            return (sums + onehot.T @ chunk, counts + onehot.sum(axis=0), cost + distance.sum()), None

        zero = (jnp.zeros_like(centroids), jnp.zeros((cfg.clusters,)), jnp.zeros(()))
        chunks = points.reshape(-1, cfg.chunk, cfg.dim)
        zero = jax.lax.pcast(zero, "points", to="varying")
        total, _ = jax.lax.scan(one, zero, chunks)
        return jax.lax.psum(total, "points")

    sums_fn = jax.shard_map(local_sums, mesh=mesh, in_specs=(P("points", None), P()), out_specs=P())

    def fit(points, centroids):
        def lloyd(centroids, _):
            sums, counts, cost = sums_fn(points, centroids)
            moved = jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centroids)
            return moved, cost / cfg.points

        return jax.lax.scan(lloyd, centroids, None, length=cfg.rounds)

    points = jax.ShapeDtypeStruct(
        (cfg.points, cfg.dim), jnp.float32, sharding=NamedSharding(mesh, P("points", None)))
    centroids = jax.ShapeDtypeStruct((cfg.clusters, cfg.dim), jnp.float32, sharding=NamedSharding(mesh, P()))
    return jax.jit(fit, donate_argnums=1), (points, centroids)
