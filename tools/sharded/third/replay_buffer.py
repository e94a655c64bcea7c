# mypy: ignore-errors
"""Fault: donated. A replay buffer is donated split over both axes of the mesh, but comes back split over one, so the old one cannot be written in place."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
ENVS, SLOTS, UNROLL, OBS, ACT = 256, 512, 16, 128, 16
FIELDS = {"obs": (OBS, jnp.float32), "next_obs": (OBS, jnp.float32), "action": (ACT, jnp.float32)}


def insert(buffer, fresh, at):
    write = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=1)
    return jax.tree.map(write, buffer, fresh)


def window(buffer, key):
    start = jax.random.randint(key, (), 0, SLOTS - UNROLL)
    return jax.tree.map(lambda column: jax.lax.dynamic_slice_in_dim(column, start, UNROLL, axis=1), buffer)


def spread(tree, mesh, *axes):
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P(axes)))  # FAULT


def td_error(critic, batch):
    q = lambda o, a: jax.nn.relu(jnp.concatenate([o, a], -1) @ critic["w0"]) @ critic["w1"]
    now, later = q(batch["obs"], batch["action"]), q(batch["next_obs"], batch["action"])
    return jnp.mean((now - 0.99 * jax.lax.stop_gradient(later)) ** 2)


def build(devices, *after):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("actor", "learner"))

    @partial(jax.jit, donate_argnums=0)
    def add_and_learn(buffer, critic, fresh, at, key):
        buffer = insert(buffer, fresh, at)
        batch = spread(window(buffer, key), mesh, "actor", "learner")
        grads = jax.grad(td_error)(critic, batch)
        return spread(buffer, mesh, *after), jax.tree.map(lambda p, g: p - 1e-3 * g, critic, grads)  # FAULT

    both, small = NamedSharding(mesh, P(("actor", "learner"))), NamedSharding(mesh, P())
    column = lambda n: {k: jax.ShapeDtypeStruct((ENVS, n, w), t, sharding=both) for k, (w, t) in FIELDS.items()}
    critic = {"w0": jax.ShapeDtypeStruct((OBS + ACT, 256), jnp.float32, sharding=small), "w1": jax.ShapeDtypeStruct((256, 1), jnp.float32, sharding=small)}
    at, key = jax.ShapeDtypeStruct((), jnp.int32, sharding=small), jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=small)
    return add_and_learn, (column(SLOTS), critic, column(UNROLL), at, key)


def make_faulty(devices):
    return build(devices, "learner")  # FAULT


def make_fixed(devices):
    return build(devices, "actor", "learner")
