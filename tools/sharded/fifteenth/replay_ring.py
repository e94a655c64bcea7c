# mypy: ignore-errors
"""Fault: donated. The replay ring comes in divided over hosts and cores and is donated, but goes out divided over hosts only, so
the donated buffer cannot be written in place: a second, larger ring is allocated at every step."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Config:
    slots: int = 1024
    envs: int = 256
    obs: int = 192
    actions: int = 8
    unroll: int = 16
    hidden: int = 256
    sample: int = 32
    gamma: float = 0.99


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Ring:
    obs: jax.Array
    action: jax.Array
    reward: jax.Array


def insert(ring, new, at):
    return jax.tree.map(lambda b, n: jax.lax.dynamic_update_slice_in_dim(b, n, at, axis=0), ring, new)


def q_values(net, obs):
    h = jax.nn.relu(obs @ net["w1"] + net["b1"])
    return h @ net["w2"] + net["b2"]


def td_loss(net, target, batch, gamma):
    q = jnp.take_along_axis(q_values(net, batch.obs[:-1]), batch.action[:-1, :, None], axis=-1)[..., 0]
    backup = batch.reward[:-1] + gamma * q_values(target, batch.obs[1:]).max(-1)
    return jnp.mean((q - jax.lax.stop_gradient(backup)) ** 2)


def learner_step(cfg, net, target, ring, new, at, start):
    ring = insert(ring, new, at)
    batch = jax.tree.map(lambda b: jax.lax.dynamic_slice_in_dim(b, start, cfg.sample, axis=0), ring)
    loss, grads = jax.value_and_grad(td_loss)(net, target, batch, cfg.gamma)
    net = jax.tree.map(lambda w, g: w - 1e-3 * g, net, grads)
    target = jax.tree.map(lambda t, w: 0.995 * t + 0.005 * w, target, net)
    return net, target, ring, loss


def ring_shapes(cfg, length):
    s = (length, cfg.envs)
    return Ring(jax.ShapeDtypeStruct((*s, cfg.obs), jnp.float32), jax.ShapeDtypeStruct(s, jnp.int32), jax.ShapeDtypeStruct(s, jnp.float32))


def make_faulty(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(4, 2), ("host", "core"))
    whole = NamedSharding(mesh, P())
    per_env = NamedSharding(mesh, P(None, ("host", "core")))
    stored = NamedSharding(mesh, P(None, "host"))  # FAULT
    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    net = {"w1": f32((cfg.obs, cfg.hidden)), "b1": f32((cfg.hidden,)), "w2": f32((cfg.hidden, cfg.actions)), "b2": f32((cfg.actions,))}
    step = jax.jit(
        functools.partial(learner_step, cfg),
        in_shardings=(whole, whole, per_env, per_env, whole, whole),
        out_shardings=(whole, whole, stored, whole),  # FAULT
        donate_argnums=(0, 1, 2),
    )
    index = jax.ShapeDtypeStruct((), jnp.int32)
    return step, (net, net, ring_shapes(cfg, cfg.slots), ring_shapes(cfg, cfg.unroll), index, index)
