# mypy: ignore-errors
"""Fault: donated. The replay memory is handed in and donated with observations split over actors only, but the update leaves
them split over actors and features: no buffer fits the result, and the old and the new memory exist at once."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

STEPS, ACTORS, OBS, ACT, HID = 256, 1024, 1024, 128, 1024


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Memory:
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    cursor: jax.Array

    @classmethod
    def abstract(cls, mesh, obs_spec):
        def a(shape, dtype, spec):
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

        return cls(
            obs=a((STEPS, ACTORS, OBS), jnp.bfloat16, obs_spec),
            action=a((STEPS, ACTORS, ACT), jnp.bfloat16, P(None, "actor", None)),
            reward=a((STEPS, ACTORS), jnp.float32, P(None, "actor")),
            cursor=a((), jnp.int32, P()),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Fresh:
    obs: jax.Array
    action: jax.Array
    reward: jax.Array


def push(mem, fresh):
    """Overwrites the oldest time step of the ring."""
    at = mem.cursor % STEPS
    put = lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new.astype(old.dtype), at, 0)
    return Memory(put(mem.obs, fresh.obs), put(mem.action, fresh.action), put(mem.reward, fresh.reward), mem.cursor + 1)


def critic(w, obs, action):
    h = jax.nn.relu(obs @ w["obs"] + action @ w["act"])
    h = jax.nn.relu(h @ w["hid"])
    return (h @ w["out"])[:, 0]


def td_loss(w, target_w, obs, action, reward, next_obs):
    bootstrap = critic(target_w, next_obs, action)
    target = reward + 0.99 * jax.lax.stop_gradient(bootstrap)
    return jnp.mean(jnp.square(critic(w, obs, action).astype(jnp.float32) - target))


def learner(mesh):
    stored = NamedSharding(mesh, P(None, "actor", "feat"))

    def update(mem, w, target_w, fresh, when):
        mem = push(mem, fresh)
        mem = dataclasses.replace(mem, obs=jax.lax.with_sharding_constraint(mem.obs, stored))
        at = lambda x, shift: jax.lax.dynamic_index_in_dim(x, (when + shift) % STEPS, 0, keepdims=False)
        loss, g = jax.value_and_grad(td_loss)(
            w, target_w, at(mem.obs, 0), at(mem.action, 0), at(mem.reward, 0), at(mem.obs, 1)
        )
        w = jax.tree.map(lambda p, d: p - 1e-3 * d, w, g)
        target_w = jax.tree.map(lambda t, p: 0.995 * t + 0.005 * p, target_w, w)
        return mem, w, target_w, loss

    return jax.jit(update, donate_argnums=(0, 1, 2))


def session(devices, obs_spec):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("actor", "feat"))
    place = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    w = {
        "obs": place((OBS, HID), jnp.bfloat16, "feat", None),
        "act": place((ACT, HID), jnp.bfloat16),
        "hid": place((HID, HID), jnp.bfloat16),
        "out": place((HID, 1), jnp.bfloat16),
    }
    fresh = Fresh(
        obs=place((ACTORS, OBS), jnp.float32, "actor", None),
        action=place((ACTORS, ACT), jnp.float32, "actor", None),
        reward=place((ACTORS,), jnp.float32, "actor"),
    )
    return learner(mesh), (Memory.abstract(mesh, obs_spec), w, w, fresh, place((), jnp.int32))


def make_faulty(devices):
    return session(devices, obs_spec=P(None, "actor", None))  # FAULT


def make_fixed(devices):
    return session(devices, obs_spec=P(None, "actor", "feat"))
