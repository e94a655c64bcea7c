# mypy: ignore-errors
"""Fault: padding. The curves are split over an axis of four, but with the fifth currency there are five of them:
every device holds two, and three of the eight places are padding. The paths, of which there are plenty, divide.

Counterparty exposure by Monte Carlo: forward curves of a few currencies are simulated month by month, a book of swaps
is revalued on every path, and the collateralised exposure profile and the CVA are computed from the path values."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CHF")


@dataclasses.dataclass(frozen=True)
class SimulationConfig:
    paths: int = 131072
    tenors: int = 64
    months: int = 48
    factors: int = 3
    margin_lag: int = 1
    threshold: float = 0.002


@dataclasses.dataclass(frozen=True)
class Layout:
    mesh: Mesh
    forwards: P = P("curve", "path", None)  # FAULT
    shocks: P = P("curve", "path", None)  # FAULT
    values: P = P(None, "curve", "path")  # FAULT

    def put(self, array, which):
        return lax.with_sharding_constraint(array, NamedSharding(self.mesh, getattr(self, which)))


def evolve(forwards, shocks, loadings, dt):
    """One Gaussian HJM step in Musiela form: drift from the loadings, diffusion from the shocks."""
    drift = jnp.sum(loadings * jnp.cumsum(loadings, axis=1) * dt, axis=-1)
    slope = jnp.concatenate([jnp.diff(forwards, axis=-1), jnp.zeros_like(forwards[..., :1])], axis=-1)
    diffusion = jnp.einsum("cpf,ckf->cpk", shocks, loadings)
    return forwards + (drift[:, None, :] + slope) * dt + diffusion * dt ** 0.5


def swap_values(forwards, notionals, strikes, dt):
    discounts = jnp.exp(-jnp.cumsum(forwards * dt, axis=-1))
    return jnp.einsum("cpk,ck->cp", discounts * (forwards - strikes[:, None, None]), notionals) * dt


def collateralised(values, cfg):
    """Exposure over the margin period: today's value less the collateral called `margin_lag` months ago."""
    called = jnp.maximum(values - cfg.threshold, 0.0)
    collateral = jnp.concatenate([jnp.zeros_like(called[: cfg.margin_lag]), called[: -cfg.margin_lag]], axis=0)
    return jnp.maximum(values - collateral, 0.0)


def exposure(key, initial, loadings, notionals, strikes, hazard, *, cfg, layout):
    dt = 1.0 / 12.0
    curves = initial.shape[0]
    start = jnp.broadcast_to(initial[:, None, :], (curves, cfg.paths, cfg.tenors))
    start = layout.put(start, "forwards")

    def month(forwards, step):
        shocks = jax.random.normal(jax.random.fold_in(key, step), (curves, cfg.paths, cfg.factors))
        shocks = layout.put(shocks, "shocks")
        forwards = layout.put(evolve(forwards, shocks, loadings, dt), "forwards")
        return forwards, swap_values(forwards, notionals, strikes, dt)

    _, values = lax.scan(month, start, jnp.arange(cfg.months))
    values = layout.put(values, "values")
    open_exposure = collateralised(values, cfg)
    profile = open_exposure.mean(axis=-1)
    peak = open_exposure.max(axis=0).mean(axis=-1)
    survival = jnp.exp(-hazard * dt * jnp.arange(cfg.months))
    cva = jnp.sum(profile * (survival * hazard * dt)[:, None], axis=0)
    return {"profile": profile, "peak": peak, "cva": cva}


def make_faulty(devices):
    cfg = SimulationConfig()
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("path", "curve"))
    layout = Layout(mesh)
    small = NamedSharding(mesh, P())

    def market(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=small)

    n = len(CURRENCIES)
    key = jax.eval_shape(lambda: jax.random.key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=small)
    arguments = (key, market(n, cfg.tenors), market(n, cfg.tenors, cfg.factors), market(n, cfg.tenors), market(n),
                 market())
    return jax.jit(partial(exposure, cfg=cfg, layout=layout), out_shardings=small), arguments
