# mypy: ignore-errors
"""Fault: replicated. The relatedness matrix is a product over the split markers and nothing says how it is to be
split itself, so it is summed up whole on every chip.

Linear mixed model for an association study: relatedness of the individuals, variance components, marker tests.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

STUDY = {
    "individuals": 8192,
    "markers": 131072,
    "covariates": 16,
    "probes": 8,
    "iterations": 40,
    "heritability": (0.2, 0.5, 0.8),
}


def normalize(genotypes):
    """Counts 0, 1, 2 to standardized values, one column per marker."""
    counts = genotypes.astype(jnp.float32)
    frequency = counts.mean(axis=0) / 2
    return ((counts - 2 * frequency) * jax.lax.rsqrt(2 * frequency * (1 - frequency) + 1e-6)).astype(jnp.bfloat16)


def relatedness(standardized):
    product = jnp.einsum("im,jm->ij", standardized, standardized, preferred_element_type=jnp.float32)  # FAULT
    return product / standardized.shape[1]  # FAULT


def solve(covariance, rhs, iterations):
    def body(_, carry):
        x, r, p, norm = carry
        ap = covariance(p)
        alpha = norm / (jnp.sum(p * ap, axis=0) + 1e-12)
        x, r = x + alpha * p, r - alpha * ap
        fresh = jnp.sum(r * r, axis=0)
        return x, r, r + fresh / (norm + 1e-12) * p, fresh

    start = (jnp.zeros_like(rhs), rhs, rhs, jnp.sum(rhs * rhs, axis=0))
    return jax.lax.fori_loop(0, iterations, body, start)[0]


def likelihood_score(kinship, h2, phenotype, probes, iterations):
    """Stochastic estimate of the derivative of the likelihood with respect to the heritability."""
    covariance = lambda v: h2 * (kinship @ v) + (1 - h2) * v
    solved = solve(covariance, jnp.concatenate([phenotype[:, None], probes], axis=1), iterations)
    direction = kinship @ solved - solved
    quadratic = jnp.vdot(solved[:, 0], direction[:, 0])
    trace = jnp.mean(jnp.sum(probes * direction[:, 1:], axis=0))
    return (quadratic - trace) / 2, solved[:, 0]


def make_study(study, mesh):
    by_individual = NamedSharding(mesh, P("chips", None))
    by_marker = NamedSharding(mesh, P(None, "chips"))

    def associate(genotypes, covariates, phenotype, key):
        standardized = jax.lax.with_sharding_constraint(normalize(genotypes), by_marker)
        kinship = relatedness(standardized)  # FAULT
        probes = jax.random.rademacher(key, (study["individuals"], study["probes"]), jnp.float32)
        coefficients = jnp.linalg.pinv(covariates.T @ covariates) @ (covariates.T @ phenotype)
        residual = phenotype - covariates @ coefficients

        scores, whitened = [], []
        for h2 in study["heritability"]:
            score, solved = likelihood_score(kinship, h2, residual, probes, study["iterations"])
            scores.append(score)
            whitened.append(solved)
        best = jnp.argmin(jnp.abs(jnp.stack(scores)))
        effect = jnp.stack(whitened)[best].astype(jnp.bfloat16) @ standardized
        return effect, jnp.stack(scores)

    return associate, by_individual, by_marker


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(16), ("chips",))
    associate, by_individual, by_marker = make_study(STUDY, mesh)
    n, m = STUDY["individuals"], STUDY["markers"]
    whole = NamedSharding(mesh, P())
    genotypes = jax.ShapeDtypeStruct((n, m), jnp.int8, sharding=by_marker)
    covariates = jax.ShapeDtypeStruct((n, STUDY["covariates"]), jnp.float32, sharding=whole)
    phenotype = jax.ShapeDtypeStruct((n,), jnp.float32, sharding=whole)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=whole)
    return jax.jit(associate), (genotypes, covariates, phenotype, key)
