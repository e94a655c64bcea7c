# mypy: ignore-errors
"""Fault: padding. Eight routed experts and the shared one make nine slots, which are split over eight devices: every
device gets room for two, so that sixteen slots are held for nine."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class MoEConfig:
    routed: int = 8
    shared: int = 1
    dim: int = 256
    hidden: int = 1024
    capacity: int = 8192

    @property
    def slots(self):
        return self.routed + self.shared


@dataclasses.dataclass(frozen=True)
class Layout:
    weights: P = P(None, None, "ep")
    weights_out: P = P(None, "ep", None)
    slots: P = P(None, "ep", None)


def expert_ffn(w, x):
    h = jnp.einsum("ecd,edf->ecf", x, w["up"])
    g = jnp.einsum("ecd,edf->ecf", x, w["gate"])
    return h * jax.nn.silu(g)


def make_fixed(devices):
    cfg, layout = MoEConfig(), Layout()
    mesh = Mesh(np.array(devices), ("ep",))

    def named(spec):
        return NamedSharding(mesh, spec)

    def pin(x):
        return jax.lax.with_sharding_constraint(x, named(layout.slots))

    def fill_slots(tokens, router):
        """Every routed expert takes the `capacity` tokens that score highest; the shared one takes them in order."""
        scores = jax.nn.sigmoid(tokens @ router)
        gates, index = jax.lax.top_k(scores.T, cfg.capacity)
        first = jnp.arange(cfg.capacity)[None]
        index = jnp.concatenate([index, first], axis=0)
        gates = jnp.concatenate([gates, jnp.ones_like(first, gates.dtype)], axis=0)
        return index, gates

    def layer(params, tokens):
        index, gates = fill_slots(tokens, params["router"])
        x = pin(tokens[index])
        h = pin(expert_ffn(params, x))
        y = pin(jnp.einsum("ecf,efd->ecd", h, params["down"]))
        y = y * gates[..., None]
        return tokens.at[index.reshape(-1)].add(y.reshape(-1, cfg.dim))

    def whole(w):
        return jax.lax.with_sharding_constraint(w, named(P()))

    @jax.checkpoint
    def gathered_layer(params, tokens):
        return layer(jax.tree.map(whole, params), tokens)

    def loss_fn(params, tokens, target):
        return jnp.mean((gathered_layer(params, tokens) - target) ** 2)

    shardings = {
        "router": named(P()),
        "up": named(layout.weights),
        "gate": named(layout.weights),
        "down": named(layout.weights_out),
    }

    def step(params, tokens, target):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, target)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    shapes = {
        "router": (cfg.dim, cfg.routed),
        "up": (cfg.slots, cfg.dim, cfg.hidden),
        "gate": (cfg.slots, cfg.dim, cfg.hidden),
        "down": (cfg.slots, cfg.hidden, cfg.dim),
    }
    params = {k: jax.ShapeDtypeStruct(shapes[k], jnp.float32, sharding=shardings[k]) for k in shapes}
    tokens = jax.ShapeDtypeStruct((cfg.capacity, cfg.dim), jnp.float32, sharding=named(P("ep", None)))
    fn = jax.jit(step, donate_argnums=0, out_shardings=(shardings, named(P())))
    return fn, (params, tokens, tokens)
