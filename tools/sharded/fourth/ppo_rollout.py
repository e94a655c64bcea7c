# mypy: ignore-errors
"""Fault: stack. The transition is made replicated inside the rollout scan before it is stacked, so the trajectory of
all environments is whole on every device although the environments are split."""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

NUM_ENVS, HORIZON = 4096, 64
OBS, ACT, HIDDEN = 192, 8, 128


class EnvState(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    goal: jax.Array
    age: jax.Array


class Carry(NamedTuple):
    env: EnvState
    memory: jax.Array
    episode_return: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    memory: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def observe(env):
    return jnp.concatenate([env.pos, env.vel, env.goal - env.pos], axis=-1)


def env_step(env, action, limit=500):
    push = jnp.repeat(jnp.tanh(action), OBS // 3 // ACT, axis=-1)
    vel = 0.95 * env.vel + 0.05 * push
    pos = env.pos + 0.1 * vel
    error = jnp.mean(jnp.square(env.goal - pos), axis=-1)
    reward = -error - 1e-3 * jnp.mean(jnp.square(action), axis=-1)
    done = (error < 1e-2) | (env.age >= limit)
    keep = ~done[:, None]
    env = EnvState(pos * keep, vel * keep, env.goal, jnp.where(done, 0, env.age + 1))
    return env, reward, done


def gru(p, h, x):
    z, r = jnp.split(jax.nn.sigmoid(x @ p["x_zr"] + h @ p["h_zr"] + p["b_zr"]), 2, axis=-1)
    new = jnp.tanh(x @ p["x_n"] + (r * h) @ p["h_n"])
    return (1 - z) * h + z * new


def policy(params, memory, obs):
    x = jnp.tanh(obs @ params["embed"])
    memory = gru(params["gru"], memory, x)
    return memory, memory @ params["pi"], (memory @ params["v"])[..., 0]


def log_prob(mean, log_std, action):
    z = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z * z - log_std - 0.5 * np.log(2 * np.pi), axis=-1)


def collect(params, carry, key, *, store):
    """Plays HORIZON steps in all environments; the learner takes the trajectory."""

    def step(carry, k):
        obs = observe(carry.env)
        memory, mean, value = policy(params, carry.memory, obs)
        action = mean + jnp.exp(params["log_std"]) * jax.random.normal(k, mean.shape)
        logp = log_prob(mean, params["log_std"], action)
        env, reward, done = env_step(carry.env, action)
        tr = Transition(obs, carry.memory, action, logp, value, reward, done)
        total = jnp.where(done, 0.0, carry.episode_return + reward)
        return Carry(env, memory * ~done[:, None], total), store(tr)  # FAULT

    carry, traj = jax.lax.scan(step, carry, jax.random.split(key, HORIZON))  # FAULT
    stats = {"reward": jnp.mean(traj.reward), "done": jnp.mean(traj.done), "return": jnp.mean(carry.episode_return)}
    return carry, traj, stats


def structs():
    def f32(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    cell = {"x_zr": f32(HIDDEN, 2 * HIDDEN), "h_zr": f32(HIDDEN, 2 * HIDDEN), "b_zr": f32(2 * HIDDEN),
            "x_n": f32(HIDDEN, HIDDEN), "h_n": f32(HIDDEN, HIDDEN)}
    params = {"embed": f32(OBS, HIDDEN), "gru": cell, "pi": f32(HIDDEN, ACT), "v": f32(HIDDEN, 1), "log_std": f32(ACT)}
    vec = f32(NUM_ENVS, OBS // 3)
    env = EnvState(vec, vec, vec, jax.ShapeDtypeStruct((NUM_ENVS,), jnp.int32))
    carry = Carry(env, f32(NUM_ENVS, HIDDEN), f32(NUM_ENVS))
    return params, carry, jax.eval_shape(lambda: jax.random.key(0))


def build(mesh, store):
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("env"))
    fn = jax.jit(partial(collect, store=store), in_shardings=(rep, rows, rep), donate_argnums=(1,))
    return fn, structs()


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("env",))
    everywhere = NamedSharding(mesh, P())  # FAULT
    return build(mesh, lambda tr: jax.lax.with_sharding_constraint(tr, everywhere))  # FAULT


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("env",))
    by_env = NamedSharding(mesh, P("env"))
    return build(mesh, lambda tr: jax.lax.with_sharding_constraint(tr, by_env))
