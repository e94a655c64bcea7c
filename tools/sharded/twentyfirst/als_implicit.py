# mypy: ignore-errors
"""Fault: replicated. The item-major half of the interaction lists (ids and confidences) is handed whole to
every device, although the items divide evenly as the users do.

Implicit-feedback matrix factorisation by alternating least squares (Hu, Koren, Volinsky 2008) for a podcast
shop. Each half-sweep solves one regularised normal equation per row with a few conjugate gradient steps; the
factors of the other side are gathered for it, they are small.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Settings:
    users: int = 65_536
    items: int = 16_384
    rank: int = 32
    plays_per_user: int = 32
    plays_per_item: int = 256  # the head is subsampled, the tail padded with weight zero
    regulariser: float = 0.05
    cg_steps: int = 3


class Lists(NamedTuple):
    """Padded adjacency lists: who touched what, and how often."""

    ids: Any
    confidence: Any


class Factors(NamedTuple):
    users: Any
    items: Any


def layout(mesh):
    rows, whole = NamedSharding(mesh, P("shard")), NamedSharding(mesh, P())
    return {
        "factors": Factors(users=rows, items=rows),
        "by_user": Lists(ids=rows, confidence=rows),
        "by_item": Lists(ids=whole, confidence=whole),  # FAULT
        "gathered": whole,
    }


def solve_side(current, other, lists, settings):
    """A few CG steps on (Y'Y + Y'(C - I)Y + lambda I) x = Y'C p, a system per row of `current`."""
    gram = other.T @ other + settings.regulariser * jnp.eye(settings.rank)
    seen = other[lists.ids]  # row, play, rank
    extra = lists.confidence

    def matvec(x):
        inner = jnp.einsum("rpk,rk->rp", seen, x)
        return x @ gram + jnp.einsum("rpk,rp->rk", seen, extra * inner)

    target = jnp.einsum("rpk,rp->rk", seen, jnp.where(extra > 0, 1.0 + extra, 0.0))
    residual = target - matvec(current)

    def cg(_, state):
        x, r, p, rr = state
        ap = matvec(p)
        alpha = rr / jnp.maximum(jnp.sum(p * ap, -1, keepdims=True), 1e-12)
        x, r = x + alpha * p, r - alpha * ap
        fresh = jnp.sum(r * r, -1, keepdims=True)
        return x, r, r + fresh / jnp.maximum(rr, 1e-12) * p, fresh

    start = (current, residual, residual, jnp.sum(residual * residual, -1, keepdims=True))
    return jax.lax.fori_loop(0, settings.cg_steps, cg, start)[0]


def build_sweep(settings, places):
    pin = jax.lax.with_sharding_constraint

    def sweep(factors, by_user, by_item):
        items = pin(factors.items, places["gathered"])
        users = solve_side(factors.users, items, by_user, settings)
        users = pin(users, places["factors"].users)
        items = solve_side(factors.items, pin(users, places["gathered"]), by_item, settings)
        items = pin(items, places["factors"].items)
        shift = jnp.sqrt(jnp.mean((items - factors.items) ** 2))
        return Factors(users, items), shift

    return sweep


def make_faulty(devices):
    settings = Settings()
    mesh = Mesh(np.array(devices), ("shard",))
    places = layout(mesh)

    def arrays(rows, width, place):
        return Lists(
            ids=jax.ShapeDtypeStruct((rows, width), jnp.int32, sharding=place.ids),
            confidence=jax.ShapeDtypeStruct((rows, width), jnp.float32, sharding=place.confidence),
        )

    def factor(rows, place):
        return jax.ShapeDtypeStruct((rows, settings.rank), jnp.float32, sharding=place)

    factors = Factors(
        factor(settings.users, places["factors"].users), factor(settings.items, places["factors"].items)
    )
    by_user = arrays(settings.users, settings.plays_per_user, places["by_user"])
    by_item = arrays(settings.items, settings.plays_per_item, places["by_item"])
    sweep = jax.jit(
        build_sweep(settings, places),
        donate_argnums=0,
        out_shardings=(places["factors"], places["gathered"]),
    )
    return sweep, (factors, by_user, by_item)
