# mypy: ignore-errors
"""Fault: replicated. The whole agent state gets one replicated sharding, the replay buffer with it, so each device
holds all of the stored frames.

Deep Q-learning update: transitions are written to and drawn from a replay buffer that lives on the devices.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CAPACITY = 65536
PIXELS = 64 * 64
ACTIONS = 18
ACTORS = 256
SAMPLES = 512
GAMMA = 0.99


class Buffer(NamedTuple):
    frames: Any
    following: Any
    actions: Any
    rewards: Any


class Agent(NamedTuple):
    params: Any
    target: Any
    opt_state: Any
    buffer: Buffer
    cursor: Any
    key: Any


class QNetwork(nn.Module):
    @nn.compact
    def __call__(self, frames):
        x = frames.astype(jnp.float32) / 255.0
        x = nn.relu(nn.Dense(1024)(x))
        x = nn.relu(nn.Dense(512)(x))
        return nn.Dense(ACTIONS)(x)


def create(network, optimizer):
    params = network.init(jax.random.key(0), jnp.zeros((1, PIXELS), jnp.uint8))
    buffer = Buffer(
        frames=jnp.zeros((CAPACITY, PIXELS), jnp.uint8),
        following=jnp.zeros((CAPACITY, PIXELS), jnp.uint8),
        actions=jnp.zeros((CAPACITY,), jnp.int32),
        rewards=jnp.zeros((CAPACITY,), jnp.float32),
    )
    return Agent(params, params, optimizer.init(params), buffer, jnp.int32(0), jax.random.key(1))


def state_shardings(agent, mesh):
    replicated = NamedSharding(mesh, P())
    return jax.tree.map(lambda _: replicated, agent)  # FAULT


def make_update(network, optimizer, by_sample):
    def td_loss(params, target, batch):
        chosen = jnp.take_along_axis(network.apply(params, batch.frames), batch.actions[:, None], axis=1)[:, 0]
        bootstrap = batch.rewards + GAMMA * jnp.max(network.apply(target, batch.following), axis=1)
        return jnp.mean(optax.huber_loss(chosen, jax.lax.stop_gradient(bootstrap)))

    def update(agent, arrived):
        slots = (agent.cursor + jnp.arange(ACTORS)) % CAPACITY
        buffer = jax.tree.map(lambda store, new: store.at[slots].set(new), agent.buffer, arrived)

        key, draw = jax.random.split(agent.key)
        picks = jax.random.randint(draw, (SAMPLES,), 0, CAPACITY)
        batch = jax.tree.map(lambda store: jax.lax.with_sharding_constraint(store[picks], by_sample), buffer)

        loss, grads = jax.value_and_grad(td_loss)(agent.params, agent.target, batch)
        updates, opt_state = optimizer.update(grads, agent.opt_state, agent.params)
        params = optax.apply_updates(agent.params, updates)
        target = optax.incremental_update(params, agent.target, 0.005)
        cursor = (agent.cursor + ACTORS) % CAPACITY
        return Agent(params, target, opt_state, buffer, cursor, key), loss

    return update


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(16), ("batch",))
    network, optimizer = QNetwork(), optax.rmsprop(1e-4)
    by_sample = NamedSharding(mesh, P("batch"))

    abstract = jax.eval_shape(lambda: create(network, optimizer))
    shardings = state_shardings(abstract, mesh)  # FAULT
    agent = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, shardings)
    arrived = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((ACTORS, *a.shape[1:]), a.dtype, sharding=by_sample), abstract.buffer)

    update = make_update(network, optimizer, by_sample)
    jitted = jax.jit(update, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))
    return jitted, (agent, arrived)
