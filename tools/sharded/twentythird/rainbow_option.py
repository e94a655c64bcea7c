# mypy: ignore-errors
"""Fault: replicated. The key is of the "rbg" kind, whose generator the partitioner does not split: every chip draws
the normals of all paths before it keeps its share.

Monte Carlo price and sensitivities of a rainbow option on several correlated assets, with the paths over all chips and
the barrier watched along each path; the normals are handed back, for the hedges to be priced on the same paths.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Contract:
    assets: int = 4
    months: int = 24
    strike: float = 100.0
    barrier: float = 60.0
    rate: float = 0.03

    @property
    def dt(self):
        return 1.0 / 12.0


@dataclass(frozen=True)
class Sampling:
    paths: int = 1 << 21
    generator: str = "rbg"  # FAULT


class Pricer:
    def __init__(self, contract, sampling, mesh):
        self.contract = contract
        self.sampling = sampling
        self.mesh = mesh
        self.by_path = NamedSharding(mesh, P(None, None, ("host", "chip")))

    def normals(self, seed):
        c = self.contract
        key = jax.random.key(seed, impl=self.sampling.generator)  # FAULT
        z = jax.random.normal(key, (c.months, c.assets, self.sampling.paths))  # FAULT
        return jax.lax.with_sharding_constraint(z, self.by_path)

    def payoff(self, spot, volatility, correlation, z):
        c = self.contract
        factor = jnp.linalg.cholesky(correlation)
        drift = (c.rate - 0.5 * volatility**2) * c.dt

        def month(carry, shock):
            level, alive = carry
            moved = jnp.einsum("ij,jp->ip", factor, shock)
            level = level + drift[:, None] + (volatility * jnp.sqrt(c.dt))[:, None] * moved
            alive = alive & (jnp.exp(level).min(axis=0) > c.barrier)
            return (level, alive), None

        start = jnp.broadcast_to(jnp.log(spot)[:, None], z.shape[1:])
        alive = jnp.ones(z.shape[2], bool)
        (level, alive), _ = jax.lax.scan(month, (start, alive), z)
        best = jnp.exp(level).max(axis=0)
        value = jnp.where(alive, jnp.maximum(best - c.strike, 0.0), 0.0)
        return jnp.exp(-c.rate * c.dt * c.months) * value

    def quote(self, seed, spots, volatility, correlation):
        z = self.normals(seed)

        def price(spot):
            value = self.payoff(spot, volatility, correlation, z)
            return value.mean(), value.std() / jnp.sqrt(value.size)

        prices, errors = jax.lax.map(price, spots)
        deltas = (prices[1:] - prices[:1]) / (spots[1:] - spots[:1]).sum(axis=1)
        return prices[0], errors[0], deltas, z


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("host", "chip"))
    contract = Contract()
    pricer = Pricer(contract, Sampling(), mesh)
    everywhere = NamedSharding(mesh, P())

    def small(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)

    arguments = (
        small(dtype=jnp.uint32),
        small(1 + contract.assets, contract.assets),
        small(contract.assets),
        small(contract.assets, contract.assets),
    )
    results = (everywhere, everywhere, everywhere, pricer.by_path)
    return jax.jit(pricer.quote, out_shardings=results), arguments
