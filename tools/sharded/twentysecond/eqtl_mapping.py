# mypy: ignore-errors
"""Fault: replicated. The expression matrix (samples x genes) is placed whole on every device although the
mapping works on a block of genes per device and both the statistics and the results are split by gene.

Expression quantitative trait loci: correlation of each variant with each gene's expression after regressing
out covariates, a block of variants at a time, keeping the best variant per gene.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SAMPLES, GENES, VARIANTS, COVARIATES = 1024, 16_384, 8192, 32
BLOCK = 256


class Best(NamedTuple):
    """The best association of each gene so far."""

    score: jax.Array
    variant: jax.Array


class Placement:
    def __init__(self, devices):
        self.mesh = Mesh(np.asarray(devices), ("gene",))

    def __call__(self, *axes):
        return NamedSharding(self.mesh, P(*axes))

    def array(self, shape, dtype, *axes):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self(*axes))


def residualize(columns, basis):
    """Columns less their projection on the orthonormal basis, at unit norm."""
    columns = columns - basis @ (basis.T @ columns)
    return columns * jax.lax.rsqrt(jnp.sum(columns * columns, axis=0, keepdims=True) + 1e-6)


def map_variants(place):
    by_gene = place(None, "gene")

    def run(expression, genotypes, covariates):
        basis, _ = jnp.linalg.qr(covariates)
        y = jax.lax.with_sharding_constraint(residualize(expression, basis), by_gene)

        def block(best, args):
            start, dosage = args
            x = residualize(dosage.astype(jnp.float32).T, basis)
            r = jax.lax.with_sharding_constraint(x.T @ y, by_gene)
            strength = jnp.abs(r)
            top = jnp.argmax(strength, axis=0)
            value = jnp.max(strength, axis=0)
            better = value > best.score
            best = Best(
                jnp.where(better, value, best.score),
                jnp.where(better, start + top.astype(jnp.int32), best.variant),
            )
            return best, jnp.sum(strength > 0.2, axis=0).astype(jnp.int32)

        starts = jnp.arange(0, VARIANTS, BLOCK, dtype=jnp.int32)
        none = Best(jnp.zeros(GENES), jnp.full(GENES, -1, jnp.int32))
        best, hits = jax.lax.scan(block, none, (starts, genotypes))
        dof = SAMPLES - 2 - COVARIATES
        t = best.score * jnp.sqrt(dof / (1.0 - best.score**2 + 1e-9))
        return Best(t, best.variant), jnp.sum(hits, axis=0)

    return run


def make_faulty(devices):
    place = Placement(devices)
    arguments = (
        place.array((SAMPLES, GENES), jnp.float32),  # FAULT
        place.array((VARIANTS // BLOCK, BLOCK, SAMPLES), jnp.int8),
        place.array((SAMPLES, COVARIATES), jnp.float32),
    )
    out = (Best(place("gene"), place("gene")), place("gene"))
    return jax.jit(map_variants(place), out_shardings=out), arguments
