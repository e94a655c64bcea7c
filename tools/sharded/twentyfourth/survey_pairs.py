# mypy: ignore-errors
"""Clean. Pair counts of a galaxy survey: every device holds its own galaxies, and blocks of the others' positions travel
around the ring, so that the matrix of pairs never exists beyond one tile.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Survey:
    galaxies: int = 1 << 21
    randoms: int = 1 << 22
    tile: int = 2048
    bins: int = 24
    largest: float = 150.0

    def edges(self):
        return np.linspace(0.0, self.largest, self.bins + 1, dtype=np.float32) ** 2


def histogram_tile(a, b, edges):
    """Weighted counts of the pairs of two tiles; columns of a and b are x, y, z and weight."""
    cross = a[:, :3] @ b[:, :3].T
    distance2 = jnp.sum(a[:, :3] ** 2, 1)[:, None] + jnp.sum(b[:, :3] ** 2, 1)[None] - 2 * cross
    pair_weight = a[:, 3][:, None] * b[:, 3][None]
    below = lax.map(lambda edge: jnp.sum(jnp.where(distance2 < edge, pair_weight, 0.0)), jnp.asarray(edges))
    return jnp.diff(below)


class PairCounter:
    def __init__(self, survey, mesh):
        self.survey, self.mesh = survey, mesh
        self.axis = mesh.axis_names[0]

    def tiles(self, points):
        return points.reshape(-1, self.survey.tile, 4)

    def local_counts(self, mine, theirs):
        edges = self.survey.edges()

        def row(total, a):
            def column(total, b):
                return total + histogram_tile(a, b, edges), None

            return lax.scan(column, total, self.tiles(theirs))[0], None

        zero = lax.pcast(jnp.zeros(self.survey.bins), self.axis, to="varying")
        return lax.scan(row, zero, self.tiles(mine))[0]

    def ring_counts(self, mine, visiting):
        size = lax.axis_size(self.axis)
        ring = [(i, (i + 1) % size) for i in range(size)]

        def turn(_, carry):
            total, visiting = carry
            total = total + self.local_counts(mine, visiting)
            return total, lax.ppermute(visiting, self.axis, ring)

        zero = lax.pcast(jnp.zeros(self.survey.bins), self.axis, to="varying")
        total, _ = lax.fori_loop(0, size, turn, (zero, visiting))
        return lax.psum(total, self.axis)

    def correlation(self, data, randoms):
        """The Landy-Szalay estimate."""
        count = jax.shard_map(
            self.ring_counts, mesh=self.mesh, in_specs=(P(self.axis), P(self.axis)), out_specs=P())
        data_weight, random_weight = data[:, 3].sum(), randoms[:, 3].sum()
        dd = count(data, data) / data_weight**2
        dr = count(data, randoms) / (data_weight * random_weight)
        rr = count(randoms, randoms) / random_weight**2
        return (dd - 2 * dr + rr) / jnp.maximum(rr, 1e-20)


def make_clean(devices):
    survey = Survey()
    mesh = Mesh(np.asarray(devices).reshape(8), ("device",))
    counter = PairCounter(survey, mesh)
    split = NamedSharding(mesh, P("device"))
    data = jax.ShapeDtypeStruct((survey.galaxies, 4), jnp.float32, sharding=split)
    randoms = jax.ShapeDtypeStruct((survey.randoms, 4), jnp.float32, sharding=split)
    return jax.jit(counter.correlation, out_shardings=NamedSharding(mesh, P())), (data, randoms)
