# mypy: ignore-errors
"""Fault: donated. The replay buffer comes in split by actor and pixel and is donated, yet the insertion returns its frames
split by actor alone, so that every insertion allocates a second, larger buffer beside the donated one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

STEPS, ACTORS, SIDE, STACK = 64, 256, 84, 4
DRAWS = 2


class Replay(NamedTuple):
    frames: jax.Array
    actions: jax.Array
    rewards: jax.Array
    priority: jax.Array
    cursor: jax.Array


class Rollout(NamedTuple):
    frames: jax.Array
    actions: jax.Array
    rewards: jax.Array


def replay_specs():
    return Replay(
        frames=P(None, "actor", "pixel"),
        actions=P(None, "actor"),
        rewards=P(None, "actor"),
        priority=P(),
        cursor=P(),
    )


def insert(replay, rollout):
    """Writes one step of all actors at the cursor; new entries get the highest priority."""
    at = replay.cursor

    def put(buffer, new):
        return jax.lax.dynamic_update_slice_in_dim(buffer, new[None].astype(buffer.dtype), at, axis=0)

    fresh = jnp.max(replay.priority)
    return Replay(
        frames=put(replay.frames, rollout.frames.reshape(ACTORS, -1)),
        actions=put(replay.actions, rollout.actions),
        rewards=put(replay.rewards, rollout.rewards),
        priority=put(replay.priority, fresh),
        cursor=(at + 1) % STEPS,
    )


def draw(replay, key):
    """Prioritised sampling of time steps by Gumbel top-k; returns indices and importance weights."""
    score = 0.6 * jnp.log(replay.priority + 1e-6)
    _, index = jax.lax.top_k(score + jax.random.gumbel(key, score.shape), DRAWS)
    prob = jax.nn.softmax(score)[index]
    weight = (1.0 / (STEPS * prob)) ** 0.4
    return index, weight / jnp.max(weight)


def update(replay, rollout, key):
    replay = insert(replay, rollout)
    index, weight = draw(replay, key)
    batch = {
        "frames": replay.frames[index],
        "actions": replay.actions[index],
        "rewards": replay.rewards[index],
        "weight": weight,
    }
    return replay, batch


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("actor", "pixel"))

    def named(spec):
        return NamedSharding(mesh, spec)

    def struct(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=named(spec))

    specs = replay_specs()
    pixels = SIDE * SIDE * STACK
    replay = Replay(
        frames=struct((STEPS, ACTORS, pixels), jnp.uint8, specs.frames),
        actions=struct((STEPS, ACTORS), jnp.int32, specs.actions),
        rewards=struct((STEPS, ACTORS), jnp.float32, specs.rewards),
        priority=struct((STEPS,), jnp.float32, specs.priority),
        cursor=struct((), jnp.int32, specs.cursor),
    )
    rollout = Rollout(
        frames=struct((ACTORS, SIDE, SIDE, STACK), jnp.uint8, P("actor")),
        actions=struct((ACTORS,), jnp.int32, P("actor")),
        rewards=struct((ACTORS,), jnp.float32, P("actor")),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    drawn = {
        "frames": named(specs.frames),
        "actions": named(specs.actions),
        "rewards": named(specs.rewards),
        "weight": named(P()),
    }
    returned = specs._replace(frames=P(None, "actor"))  # FAULT
    fn = jax.jit(
        update,
        donate_argnums=0,
        out_shardings=(jax.tree.map(named, returned), drawn),  # FAULT
    )
    return fn, (replay, rollout, struct(key.shape, key.dtype, P()))
