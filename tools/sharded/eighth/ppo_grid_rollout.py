# mypy: ignore-errors
"""Fault: stack. The rollout scan records its transitions with an empty spec, so the trajectory it stacks (observations
above all) is whole on every device although the environments themselves are split."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

ENVS, HORIZON, SIZE, ACTIONS, HIDDEN = 1024, 64, 20, 4, 256
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.int32)


class EnvState(NamedTuple):
    agent: jax.Array  # (envs, 2)
    goal: jax.Array  # (envs, 2)
    walls: jax.Array  # (envs, SIZE, SIZE)


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array


def observe(state):
    cells = jnp.arange(SIZE)

    def plane(pos):
        return (cells[:, None] == pos[:, 0, None, None]) & (cells[None, :] == pos[:, 1, None, None])

    stack = jnp.stack([plane(state.agent), plane(state.goal), state.walls > 0], axis=-1)
    return stack.astype(jnp.float32).reshape(ENVS, -1)


def env_step(state, action):
    pos = jnp.clip(state.agent + jnp.asarray(MOVES)[action], 0, SIZE - 1)
    wall = jax.vmap(lambda w, p: w[p[0], p[1]])(state.walls, pos) > 0
    pos = jnp.where(wall[:, None], state.agent, pos)
    done = jnp.all(pos == state.goal, axis=-1)
    return state._replace(agent=jnp.where(done[:, None], 0, pos)), done.astype(jnp.float32)


def policy(params, obs):
    h = jnp.tanh(obs @ params["w0"] + params["b0"])
    h = jnp.tanh(h @ params["w1"] + params["b1"])
    return h @ params["pi"], (h @ params["v"])[:, 0]


def gae(traj, last_value, gamma=0.99, lam=0.95):
    def back(carry, t):
        adv, nxt = carry
        delta = t.reward + gamma * nxt - t.value
        adv = delta + gamma * lam * adv
        return (adv, t.value), adv

    small = traj._replace(obs=traj.reward)
    _, adv = jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), small, reverse=True)
    return adv


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("env",))
    per_env = NamedSharding(mesh, P("env"))
    whole = NamedSharding(mesh, P())

    def record(transition):
        return jax.lax.with_sharding_constraint(transition, whole)  # FAULT

    @functools.partial(jax.jit, donate_argnums=1)
    def rollout(params, state, key):
        def step(carry, key):
            state = jax.lax.with_sharding_constraint(carry, per_env)
            obs = observe(state)
            logits, value = policy(params, obs)
            action = jnp.argmax(logits + jax.random.gumbel(key, logits.shape), axis=-1)
            log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]
            state, reward = env_step(state, action)
            return state, record(Transition(obs, action, log_prob, value, reward))

        state, traj = jax.lax.scan(step, state, jax.random.split(key, HORIZON))
        _, last = policy(params, observe(state))
        return state, traj, gae(traj, last)

    def arr(shape, dtype, sharding):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    d = SIZE * SIZE * 3
    params = {
        k: arr(s, jnp.float32, whole)
        for k, s in {"w0": (d, HIDDEN), "b0": (HIDDEN,), "w1": (HIDDEN, HIDDEN), "b1": (HIDDEN,),
                     "pi": (HIDDEN, ACTIONS), "v": (HIDDEN, 1)}.items()
    }
    state = EnvState(
        arr((ENVS, 2), jnp.int32, per_env),
        arr((ENVS, 2), jnp.int32, per_env),
        arr((ENVS, SIZE, SIZE), jnp.int8, per_env),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    return rollout, (params, state, arr(key.shape, key.dtype, whole))
