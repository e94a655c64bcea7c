# mypy: ignore-errors
"""Fault: stack. The fresh episodes are made inside the jitted function and nothing says how they are split, so the
rollout's scan stacks the transitions of all environments on every chip.

An Anakin-like PPO update for a swarm of simulated drones: rollout, advantages and gradient in one jitted function.
"""
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    envs: int = 4096
    horizon: int = 256
    drones: int = 64  # position and velocity in the plane for each
    hidden: int = 512
    chunk: int = 8  # time steps per gradient accumulation
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 3e-4


class Env(NamedTuple):
    position: jax.Array  # [env, drone, 2]
    velocity: jax.Array
    goal: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array


def reset(key, cfg):
    shape = (cfg.envs, cfg.drones, 2)
    return Env(jnp.zeros(shape), jnp.zeros(shape), jax.random.uniform(key, shape, minval=-5.0, maxval=5.0))


def observe(env):
    both = jnp.concatenate([env.goal - env.position, env.velocity, env.position - env.position.mean(1, keepdims=True)], -1)
    return both.reshape(both.shape[0], -1)


def advance(env, action):
    velocity = 0.95 * env.velocity + 0.1 * jnp.tanh(action.reshape(env.velocity.shape))
    position = env.position + 0.1 * velocity
    distance = jnp.linalg.norm(env.goal - position, axis=-1)
    effort = jnp.mean(action**2, axis=-1)
    return Env(position, velocity, env.goal), -distance.mean(-1) - 0.01 * effort


def init_params(key, cfg):
    sizes = (6 * cfg.drones, cfg.hidden, cfg.hidden)
    keys = jax.random.split(key, 4)
    layers = [jax.random.normal(k, (m, n)) * m**-0.5 for k, m, n in zip(keys, sizes[:-1], sizes[1:])]
    mean = jax.random.normal(keys[2], (cfg.hidden, 2 * cfg.drones)) * 0.01
    value = jax.random.normal(keys[3], (cfg.hidden, 1)) * cfg.hidden**-0.5
    return {"layers": layers, "mean": mean, "value": value, "log_std": jnp.zeros(2 * cfg.drones)}


def policy(params, obs):
    h = obs
    for w in params["layers"]:
        h = jnp.tanh(h @ w)
    return h @ params["mean"], (h @ params["value"])[..., 0]


def log_prob(params, mean, action):
    z = (action - mean) * jnp.exp(-params["log_std"])
    return -0.5 * jnp.sum(z**2 + 2 * params["log_std"] + jnp.log(2 * jnp.pi), -1)


def gae(traj, last_value, cfg):
    following = jnp.concatenate([traj.value[1:], last_value[None]])
    delta = traj.reward + cfg.gamma * following - traj.value

    def back(acc, d):
        acc = d + cfg.gamma * cfg.lam * acc
        return acc, acc

    return jax.lax.scan(back, jnp.zeros_like(last_value), delta, reverse=True)[1]


def make_faulty(devices):
    cfg = Config()
    mesh = Mesh(np.asarray(devices).reshape(-1), ("env",))
    whole = NamedSharding(mesh, P())
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(cfg.lr))

    def rollout(params, key):
        start, noise = jax.random.split(key)
        env = reset(start, cfg)  # FAULT

        def step(env, key):
            obs = observe(env)
            mean, value = policy(params, obs)
            action = mean + jnp.exp(params["log_std"]) * jax.random.normal(key, mean.shape)
            env, reward = advance(env, action)
            return env, Transition(obs, action, log_prob(params, mean, action), value, reward)

        env, traj = jax.lax.scan(step, env, jax.random.split(noise, cfg.horizon))  # FAULT
        return traj, policy(params, observe(env))[1]

    def loss_fn(params, traj, advantage):
        mean, value = policy(params, traj.obs)
        ratio = jnp.exp(log_prob(params, mean, traj.action) - traj.logp)
        clipped = jnp.clip(ratio, 1 - cfg.clip, 1 + cfg.clip)
        surrogate = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        return surrogate + 0.5 * jnp.mean((value - traj.value - advantage) ** 2)

    def update(params, opt_state, key):
        traj, last_value = rollout(params, key)
        advantage = gae(traj, last_value, cfg)
        chunks = jax.tree.map(lambda x: x.reshape(-1, cfg.chunk, *x.shape[1:]), (traj, advantage))

        def accumulate(total, chunk):
            return jax.tree.map(jnp.add, total, jax.grad(loss_fn)(params, *chunk)), None

        grads, _ = jax.lax.scan(accumulate, jax.tree.map(jnp.zeros_like, params), chunks)
        grads = jax.tree.map(lambda g: g * cfg.chunk / cfg.horizon, grads)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, traj.reward.sum(0).mean()

    # The policy has half a million weights: whole everywhere.
    params = jax.eval_shape(lambda k: init_params(k, cfg), jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    put = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole)
    key = jax.eval_shape(jax.random.key, 0)
    step = jax.jit(update, out_shardings=(whole, whole, whole), donate_argnums=(0, 1))
    return step, (jax.tree.map(put, params), jax.tree.map(put, opt_state), put(key))
