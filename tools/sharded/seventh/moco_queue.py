# mypy: ignore-errors
"""Fault: replicated. The queue of negative keys (and the queue the step returns) is held whole on every device, although
its rows could be split over the "tp" axis that already splits the encoder; it dominates the memory of the step."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class MocoConfig:
    patches: int = 49
    patch_dim: int = 768
    width: int = 1024
    hidden: int = 4096
    embed: int = 256
    queue_len: int = 196608
    temperature: float = 0.07
    momentum: float = 0.999
    batch: int = 64


def encoder_shapes(cfg):
    return {
        "stem": (cfg.patch_dim, cfg.width),
        "up": (cfg.width, cfg.hidden),
        "down": (cfg.hidden, cfg.width),
        "proj": (cfg.width, cfg.embed),
    }


ENCODER_SPECS = {"stem": P(None, None), "up": P(None, "tp"), "down": P("tp", None), "proj": P(None, None)}


def encode(w, patches):
    h = jax.nn.gelu(patches @ w["stem"])
    h = h + jax.nn.gelu(h @ w["up"]) @ w["down"]
    z = jnp.mean(h, axis=1) @ w["proj"]
    return z / (jnp.linalg.norm(z, axis=-1, keepdims=True) + 1e-6)


def info_nce(query_w, key_w, queue, view_a, view_b, cfg):
    q = encode(query_w, view_a)
    k = jax.lax.stop_gradient(encode(key_w, view_b))
    positive = jnp.sum(q * k, axis=-1, keepdims=True) / cfg.temperature
    negative = q @ queue.T / cfg.temperature
    top = jax.lax.stop_gradient(jnp.maximum(positive[:, 0], jnp.max(negative, axis=-1)))
    denom = jnp.exp(positive[:, 0] - top) + jnp.sum(jnp.exp(negative - top[:, None]), axis=-1)
    return jnp.mean(jnp.log(denom) + top - positive[:, 0]), k


def train_step(state, view_a, view_b, cfg):
    grad_fn = jax.value_and_grad(info_nce, has_aux=True)
    (loss, keys), grads = grad_fn(state["query"], state["key"], state["queue"], view_a, view_b, cfg)
    query = jax.tree.map(lambda p, g: p - 0.03 * g, state["query"], grads)
    key = jax.tree.map(lambda k, q: cfg.momentum * k + (1 - cfg.momentum) * q, state["key"], query)
    slot = state["ptr"] % cfg.queue_len
    age = jnp.arange(cfg.queue_len) - slot
    fresh = (age >= 0) & (age < cfg.batch)
    queue = jnp.where(fresh[:, None], keys[age % cfg.batch], state["queue"])
    return {"query": query, "key": key, "queue": queue, "ptr": slot + cfg.batch}, loss


def state_specs_v1():
    return {
        "query": ENCODER_SPECS,
        "key": ENCODER_SPECS,
        "queue": P(),  # FAULT
        "ptr": P(),
    }


def state_specs_v2():
    return {**state_specs_v1(), "queue": P("tp", None)}


def build(devices, state_specs, cfg=MocoConfig()):
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("data", "tp"))
    is_spec = lambda s: isinstance(s, P)
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), state_specs, is_leaf=is_spec)
    shapes = {"query": encoder_shapes(cfg), "key": encoder_shapes(cfg), "queue": (cfg.queue_len, cfg.embed), "ptr": ()}
    state = jax.tree.map(
        lambda sh, shape: jax.ShapeDtypeStruct(shape, jnp.int32 if shape == () else jnp.float32, sharding=sh),
        shardings,
        shapes,
    )
    batch_sh = NamedSharding(mesh, P("data"))
    view = jax.ShapeDtypeStruct((cfg.batch, cfg.patches, cfg.patch_dim), jnp.float32, sharding=batch_sh)
    step = jax.jit(
        functools.partial(train_step, cfg=cfg),
        out_shardings=(shardings, NamedSharding(mesh, P())),
    )
    return step, (state, view, view)


def make_faulty(devices):
    return build(devices, state_specs_v1())


def make_fixed(devices):
    return build(devices, state_specs_v2())
