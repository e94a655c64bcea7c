# mypy: ignore-errors
"""Clean. The tall matrix and everything with as many rows is split by row over all chips; the thin factors
(features by rank) and the small Gram matrices are whole, every chip needs them for its rows.

Randomised range finder with power iterations (Halko, Martinsson, Tropp 2011) for a matrix of genotypes with
many more individuals than markers in a window; orthogonalisation by Cholesky QR, twice for accuracy.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Plan:
    individuals: int = 524_288
    markers: int = 4096
    rank: int = 96
    oversampling: int = 32
    power: int = 2
    chunk: int = 4096  # rows standardised at a time

    @property
    def width(self):
        return self.rank + self.oversampling


def cholesky_qr(y):
    """y (rows of this chip, width) -> orthonormal columns over all chips."""
    for _ in range(2):
        gram = jax.lax.psum(y.T @ y, ("x", "y"))
        factor = jnp.linalg.cholesky(gram + 1e-6 * jnp.trace(gram) * jnp.eye(gram.shape[0]))
        y = solve_triangular(factor, y.T, lower=True).T
    return y


class Genotypes:
    """The dosages of one chip's individuals (int8), standardised on the fly, chunk by chunk."""

    def __init__(self, dosages, chunk):
        self.chunks = dosages.reshape(-1, chunk, dosages.shape[1])
        self.total = dosages.shape[0] * jax.lax.axis_size(("x", "y"))

        def moments(total, part):
            part = part.astype(jnp.float32)
            return (total[0] + part.sum(0), total[1] + (part * part).sum(0)), None

        zero = jax.lax.pcast(jnp.zeros(dosages.shape[1]), ("x", "y"), to="varying")
        (first, second), _ = jax.lax.scan(moments, (zero, zero), self.chunks)
        first, second = (jax.lax.psum(m, ("x", "y")) / self.total for m in (first, second))
        self.mean, self.scale = first, jax.lax.rsqrt(jnp.maximum(second - first * first, 1e-4))

    def standard(self, part):
        return (part.astype(jnp.float32) - self.mean) * self.scale

    def times(self, thin):
        """A @ thin: thin is whole, the result has this chip's rows."""
        out = jax.lax.map(lambda part: self.standard(part) @ thin, self.chunks)
        return out.reshape(-1, thin.shape[1])

    def transposed_times(self, tall):
        """A.T @ tall, summed over the chips and whole on each."""
        tall = tall.reshape(*self.chunks.shape[:2], -1)

        def add(total, pair):
            part, rows = pair
            return total + self.standard(part).T @ rows, None

        zero = jax.lax.pcast(jnp.zeros((self.chunks.shape[2], tall.shape[2])), ("x", "y"), to="varying")
        return jax.lax.psum(jax.lax.scan(add, zero, (self.chunks, tall))[0], ("x", "y"))


def decompose(plan, dosages, test):
    a = Genotypes(dosages, plan.chunk)
    q = cholesky_qr(a.times(test))
    for _ in range(plan.power):
        q = cholesky_qr(a.times(a.transposed_times(q)))
    small = a.transposed_times(q)  # markers, width
    # The singular values of the small factor from its Gram matrix; the rotation is left to the host.
    return q, small, small.T @ small


def make_clean(devices):
    plan = Plan()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("x", "y"))
    rows = P(("x", "y"))
    mapped = jax.shard_map(
        lambda dosages, test: decompose(plan, dosages, test),
        mesh=mesh,
        in_specs=(rows, P()),
        out_specs=(rows, P(), P()),
    )
    dosages = jax.ShapeDtypeStruct((plan.individuals, plan.markers), jnp.int8, sharding=NamedSharding(mesh, rows))
    test = jax.ShapeDtypeStruct((plan.markers, plan.width), jnp.float32, sharding=NamedSharding(mesh, P()))
    return jax.jit(mapped), (dosages, test)
