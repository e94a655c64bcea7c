# mypy: ignore-errors
"""Fault: dropped. Sixty experts do not divide over the eight devices of "expert", and the helper
gives up an axis that does not divide: all experts' weights lie whole on every device.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class RerankerConfig:
    layers: int = 2
    width: int = 512
    ffn: int = 704
    experts: int = 60  # FAULT
    chosen: int = 4
    groups: int = 16
    group_tokens: int = 256
    slack: float = 1.25
    features: int = 768

    @property
    def capacity(self):
        return math.ceil(self.group_tokens * self.chosen * self.slack / self.experts)


class Placement:
    """Turns axis names into shardings; sizes that an axis does not divide stay whole."""

    def __init__(self, mesh):
        self.mesh = mesh

    def fits(self, size, axis):
        return axis is not None and size % self.mesh.shape[axis] == 0

    def sharding(self, shape, axes):
        kept = [a if self.fits(n, a) else None for n, a in zip(shape, axes, strict=True)]  # FAULT
        return NamedSharding(self.mesh, P(*kept))

    def array(self, shape, axes, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self.sharding(shape, axes))

    def shard(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, self.sharding(x.shape, axes))


def rms(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


class MoeReranker:
    def __init__(self, cfg, place):
        self.cfg, self.place = cfg, place

    def abstract_weights(self):
        cfg, array = self.cfg, self.place.array
        up = (cfg.experts, cfg.width, cfg.ffn)
        down = (cfg.experts, cfg.ffn, cfg.width)
        layer = {
            "norm": array((cfg.width,), (None,)),
            "router": array((cfg.width, cfg.experts), (None, None)),
            "gate": array(up, ("expert", None, None)),
            "up": array(up, ("expert", None, None)),
            "down": array(down, ("expert", None, None)),
        }
        return {
            "project": array((cfg.features, cfg.width), (None, None)),
            "layers": [layer] * cfg.layers,
            "score": array((cfg.width,), (None,)),
        }

    def route(self, h, router):
        """Combine weights [group, token, expert, slot]; tokens beyond the capacity are dropped."""
        cfg = self.cfg
        gates = jax.nn.softmax(h @ router, axis=-1)
        weight, index = jax.lax.top_k(gates, cfg.chosen)
        weight /= jnp.sum(weight, axis=-1, keepdims=True)
        combine = 0.0
        used = jnp.zeros((h.shape[0], 1, cfg.experts), jnp.int32)
        for choice in range(cfg.chosen):
            hit = jax.nn.one_hot(index[..., choice], cfg.experts, dtype=jnp.int32)
            slot = jnp.cumsum(hit, axis=1) - 1 + used
            used += jnp.sum(hit, axis=1, keepdims=True)
            at = jax.nn.one_hot(jnp.where(hit > 0, slot, -1), cfg.capacity, dtype=h.dtype)
            combine += at * weight[..., choice, None, None]
        return self.place.shard(combine, "expert", None, None, None)

    def experts(self, x, layer):
        shard = self.place.shard
        h = rms(x, layer["norm"])
        combine = self.route(h, layer["router"])
        sent = jnp.einsum("gtec,gtd->egcd", (combine > 0).astype(h.dtype), h)
        sent = shard(sent, "expert", None, None, None)
        inner = jax.nn.silu(jnp.einsum("egcd,edf->egcf", sent, layer["gate"]))
        inner *= jnp.einsum("egcd,edf->egcf", sent, layer["up"])
        back = shard(jnp.einsum("egcf,efd->egcd", inner, layer["down"]), "expert", None, None, None)
        return shard(x + jnp.einsum("gtec,egcd->gtd", combine, back), "expert", None, None)

    def __call__(self, weights, candidates):
        x = self.place.shard(candidates @ weights["project"], "expert", None, None)
        for layer in weights["layers"]:
            x = self.experts(x, layer)
        return x @ weights["score"]


def make_faulty(devices):
    cfg = RerankerConfig()
    place = Placement(Mesh(np.array(devices).reshape(8), ("expert",)))
    model = MoeReranker(cfg, place)
    shape = (cfg.groups, cfg.group_tokens, cfg.features)
    candidates = place.array(shape, ("expert", None, None))
    scores = place.sharding(shape[:2], ("expert", None))
    return jax.jit(model, out_shardings=scores), (model.abstract_weights(), candidates)
