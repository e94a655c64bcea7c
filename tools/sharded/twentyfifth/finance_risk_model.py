# mypy: ignore-errors
"""Clean. The nightly update of an equity risk model: the exponentially weighted covariance of all assets, split in
tiles over a 2 x 2 mesh and updated in place from the new returns, and its leading factors by subspace iteration."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class RiskConfig:
    assets: int = 16384
    observations: int = 512
    batch: int = 128
    factors: int = 64
    sweeps: int = 8
    half_life: float = 90.0


class Layouts:
    def __init__(self, mesh):
        self.tiles = NamedSharding(mesh, P("row", "col"))
        self.returns = NamedSharding(mesh, P(None, ("row", "col")))
        self.left = NamedSharding(mesh, P(None, "row"))
        self.right = NamedSharding(mesh, P(None, "col"))
        self.assets = NamedSharding(mesh, P(("row", "col")))
        self.factors_in = NamedSharding(mesh, P("col", None))
        self.small = NamedSharding(mesh, P())


def clean_returns(returns, volatility, cap=6.0):
    """Winsorises each return at `cap` of the asset's own volatilities; missing prices count as no move."""
    returns = jnp.where(jnp.isfinite(returns), returns, 0.0)
    limit = cap * volatility[None, :]
    return jnp.clip(returns, -limit, limit)


def decayed_update(covariance, returns, cfg, layouts):
    batches = returns.reshape(-1, cfg.batch, cfg.assets)
    keep = 0.5 ** (cfg.batch / cfg.half_life)

    def one(covariance, batch):
        left = lax.with_sharding_constraint(batch, layouts.left)
        right = lax.with_sharding_constraint(batch, layouts.right)
        outer = jnp.einsum("ti,tj->ij", left, right) / cfg.batch
        return lax.with_sharding_constraint(keep * covariance + (1.0 - keep) * outer, layouts.tiles), None

    covariance, _ = lax.scan(one, covariance, batches)
    return covariance


def orthonormal(block, ridge=1e-6):
    """Cholesky QR: the Gram matrix is factors x factors, the tall block stays split over the assets."""
    gram = block.T @ block
    gram = gram + ridge * jnp.trace(gram) / gram.shape[0] * jnp.eye(gram.shape[0], dtype=gram.dtype)
    lower = jnp.linalg.cholesky(gram)
    return block @ jnp.linalg.inv(lower).T


def leading_factors(covariance, block, cfg, layouts):
    def sweep(_, block):
        block = lax.with_sharding_constraint(block, layouts.factors_in)
        block = lax.with_sharding_constraint(covariance @ block, layouts.assets)
        return orthonormal(block)

    block = lax.fori_loop(0, cfg.sweeps, sweep, block)
    variances = jnp.sum(block * (covariance @ lax.with_sharding_constraint(block, layouts.factors_in)), axis=0)
    return lax.with_sharding_constraint(block, layouts.assets), variances


def nightly(state, returns, *, cfg, layouts):
    returns = clean_returns(returns, state["volatility"])
    covariance = decayed_update(state["covariance"], returns, cfg, layouts)
    exposures, variances = leading_factors(covariance, state["exposures"], cfg, layouts)
    total = jnp.sum(returns ** 2, axis=0) / cfg.observations
    explained = jnp.sum(exposures ** 2 * variances[None, :], axis=1)
    state = {"covariance": covariance, "exposures": exposures, "volatility": jnp.sqrt(total)}
    return state, {"variances": variances, "specific": jnp.maximum(total - explained, 0.0)}


def make_clean(devices):
    cfg = RiskConfig()
    layouts = Layouts(Mesh(np.asarray(devices).reshape(2, 2), ("row", "col")))
    state = {
        "covariance": jax.ShapeDtypeStruct((cfg.assets, cfg.assets), jnp.float32, sharding=layouts.tiles),
        "exposures": jax.ShapeDtypeStruct((cfg.assets, cfg.factors), jnp.float32, sharding=layouts.assets),
        "volatility": jax.ShapeDtypeStruct((cfg.assets,), jnp.float32, sharding=layouts.assets),
    }
    returns = jax.ShapeDtypeStruct((cfg.observations, cfg.assets), jnp.float32, sharding=layouts.returns)
    kept = jax.tree.map(lambda a: a.sharding, state)
    report = {"variances": layouts.small, "specific": layouts.assets}
    step = jax.jit(partial(nightly, cfg=cfg, layouts=layouts), donate_argnums=(0,), out_shardings=(kept, report))
    return step, (state, returns)
