# mypy: ignore-errors
"""Clean. Every user's posterior lives on one device, is donated and returned in the same place; the catalogue
of offers is whole on all of them, each user is scored against every offer.

Linear Thompson sampling for offers in a shop app: a posterior (inverse covariance and its inverse, both kept
by rank-one updates) per user, a day of logged rewards is replayed and then the next offers are drawn.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@partial(
    jax.tree_util.register_dataclass, data_fields=["precision", "covariance", "evidence", "pulls"], meta_fields=[]
)
@dataclasses.dataclass
class Posterior:
    precision: jax.Array  # user, feature, feature
    covariance: jax.Array
    evidence: jax.Array  # user, feature
    pulls: jax.Array  # user


USERS, FEATURES, OFFERS, EVENTS = 32_768, 48, 512, 24
FORGET, NOISE, SWEEPS, SLATE = 0.998, 0.25, 6, 8


def replay(posterior, event):
    """One logged event per user: (offer features, reward, whether there was one)."""
    x, reward, valid = event
    x = jnp.where(valid[:, None], x, 0.0)
    keep = jnp.where(valid, FORGET, 1.0)[:, None, None]
    precision = keep * posterior.precision + jnp.einsum("ui,uj->uij", x, x) / NOISE
    covariance = posterior.covariance / keep
    cx = jnp.einsum("uij,uj->ui", covariance, x)
    down = 1.0 / (NOISE + jnp.einsum("ui,ui->u", x, cx))
    covariance = covariance - down[:, None, None] * jnp.einsum("ui,uj->uij", cx, cx)
    evidence = keep[..., 0] * posterior.evidence + x * (reward / NOISE)[:, None]
    return Posterior(precision, covariance, evidence, posterior.pulls + valid)


def gibbs(key, posterior):
    """A draw from N(mean, covariance) by sweeps over the coordinates, no factorisation needed."""
    mean = jnp.einsum("uij,uj->ui", posterior.covariance, posterior.evidence)
    diagonal = jnp.diagonal(posterior.precision, axis1=1, axis2=2)

    def coordinate(i, carry):
        w, noise = carry
        row = jax.lax.dynamic_index_in_dim(posterior.precision, i, axis=1, keepdims=False)
        pivot = jax.lax.dynamic_index_in_dim(diagonal, i, axis=1, keepdims=False)
        old = jax.lax.dynamic_index_in_dim(w, i, axis=1, keepdims=False)
        z = jax.lax.dynamic_index_in_dim(noise, i, axis=1, keepdims=False)
        fresh = old - jnp.einsum("uj,uj->u", row, w) / pivot + z * jax.lax.rsqrt(pivot)
        return jax.lax.dynamic_update_index_in_dim(w, fresh, i, axis=1), noise

    def sweep(w, key):
        noise = jax.random.normal(key, w.shape)
        return jax.lax.fori_loop(0, FEATURES, coordinate, (w, noise))[0], None

    offset, _ = jax.lax.scan(sweep, jnp.zeros_like(mean), jax.random.split(key, SWEEPS))
    return mean + offset


def nightly(posterior, key, catalogue, log, rewards, valid):
    """log (events, users): index of the offer shown."""

    def step(posterior, event):
        shown, reward, was = event
        return replay(posterior, (catalogue[shown], reward, was)), None

    posterior, _ = jax.lax.scan(step, posterior, (log, rewards, valid))
    weights = gibbs(key, posterior)
    scores = weights @ catalogue.T  # user, offer

    def best(scores, _):  # one after the other: the slate is short and stays with its user
        offer = jnp.argmax(scores, axis=1)
        return jnp.where(jnp.arange(OFFERS) == offer[:, None], -jnp.inf, scores), offer

    _, slate = jax.lax.scan(best, scores, None, length=SLATE)
    return posterior, slate.T.astype(jnp.int16)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("users",))
    by_user, whole = NamedSharding(mesh, P("users")), NamedSharding(mesh, P())
    later = NamedSharding(mesh, P(None, "users"))

    def struct(sharding, *shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    matrices = struct(by_user, USERS, FEATURES, FEATURES)
    posterior = Posterior(
        matrices, matrices, struct(by_user, USERS, FEATURES), struct(by_user, USERS, dtype=jnp.int32)
    )
    day = jax.jit(nightly, donate_argnums=0, out_shardings=(by_user, by_user))
    arguments = (
        posterior,
        struct(whole, 2, dtype=jnp.uint32),
        struct(whole, OFFERS, FEATURES),
        struct(later, EVENTS, USERS, dtype=jnp.int32),
        struct(later, EVENTS, USERS),
        struct(later, EVENTS, USERS, dtype=jnp.bool_),
    )
    return day, arguments
