# mypy: ignore-errors
"""Fault: replicated. The returned responsibilities are split over the hosts axis only, while the
points they belong to are split over hosts and chips."""
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


class Mixture(NamedTuple):
    log_pi: jax.Array  # (k,)
    mean: jax.Array  # (k, d)
    var: jax.Array  # (k, d)


class Report(NamedTuple):
    mixture: Mixture
    resp: jax.Array  # (n, k)
    hard: jax.Array  # (n,)
    loglik: jax.Array  # (iters,)


@dataclasses.dataclass(frozen=True)
class EMConfig:
    points: int = 524288
    dims: int = 64
    components: int = 256
    iterations: int = 10
    floor: float = 1e-4


def log_prob(mix, x):
    """log p(x, component) without materialising (n, k, d)."""
    inv = 1.0 / mix.var
    quad = (x * x) @ inv.T - 2 * x @ (mix.mean * inv).T + jnp.sum(mix.mean**2 * inv, -1)
    norm = jnp.sum(jnp.log(mix.var), -1) + x.shape[-1] * math.log(2 * math.pi)
    return mix.log_pi - 0.5 * (quad + norm)


def e_step(mix, x):
    joint = log_prob(mix, x)
    evidence = jax.nn.logsumexp(joint, axis=-1, keepdims=True)
    return jnp.exp(joint - evidence), jnp.mean(evidence)


def m_step(resp, x, floor):
    weight = jnp.sum(resp, 0) + 1e-8
    mean = (resp.T @ x) / weight[:, None]
    second = (resp.T @ (x * x)) / weight[:, None]
    var = jnp.maximum(second - mean**2, floor)
    return Mixture(jnp.log(weight / jnp.sum(weight)), mean, var)


def fit(mix, x, *, cfg):
    def iteration(mix, _):
        resp, loglik = e_step(mix, x)
        return m_step(resp, x, cfg.floor), loglik

    mix, history = lax.scan(iteration, mix, None, length=cfg.iterations)
    resp, _ = e_step(mix, x)
    return Report(mix, resp, jnp.argmax(resp, -1).astype(jnp.int32), history)


def describe(mesh, cfg):
    """The inputs: points are spread over the whole slice, the mixture is everywhere."""
    everywhere = NamedSharding(mesh, P())
    sds = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    k, d = cfg.components, cfg.dims
    mix = Mixture(*(sds(s, sharding=everywhere) for s in [(k,), (k, d), (k, d)]))
    return mix, sds((cfg.points, d), sharding=NamedSharding(mesh, P(("hosts", "chips"), None)))


def outputs(mesh):
    everywhere = NamedSharding(mesh, P())
    return Report(
        mixture=Mixture(everywhere, everywhere, everywhere),
        resp=NamedSharding(mesh, P("hosts", None)),  # FAULT
        hard=NamedSharding(mesh, P(("hosts", "chips"))),
        loglik=everywhere,
    )


def slice_mesh(devices):
    return Mesh(np.asarray(devices).reshape(4, 4), ("hosts", "chips"))


def make_faulty(devices):
    cfg, mesh = EMConfig(), slice_mesh(devices)
    fn = jax.jit(functools.partial(fit, cfg=cfg), out_shardings=outputs(mesh))  # FAULT
    return fn, describe(mesh, cfg)


def make_fixed(devices):
    cfg, mesh = EMConfig(), slice_mesh(devices)
    out = outputs(mesh)._replace(resp=NamedSharding(mesh, P(("hosts", "chips"), None)))
    return jax.jit(functools.partial(fit, cfg=cfg), out_shardings=out), describe(mesh, cfg)
