# mypy: ignore-errors
"""Fault: dropped. The states of the environments are constrained to be split, but nobody takes the result, so each device rolls out all of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
ENVS, STEPS, OBS, ACT = 4096, 64, 32, 8


class State(NamedTuple):
    x: jax.Array
    v: jax.Array
    t: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array


def reset(key):
    a, b = jax.random.split(key)
    return State(jax.random.normal(a, (ENVS, OBS // 2)), 0.1 * jax.random.normal(b, (ENVS, OBS // 2)), jnp.zeros((ENVS,), jnp.int32))


def observe(s):
    return jnp.concatenate([s.x, s.v], -1)


def move(s, action):
    force = jnp.tile(jnp.tanh(action), (1, OBS // 2 // ACT))
    v = 0.98 * s.v + 0.05 * (force - jnp.sin(s.x))
    return State(s.x + 0.05 * v, v, s.t + 1), -jnp.sum(s.x**2, -1) - 0.01 * jnp.sum(action**2, -1)


def policy(p, obs):
    h = jnp.tanh(obs @ p["w0"] + p["b0"])
    h = jnp.tanh(h @ p["w1"] + p["b1"])
    return h @ p["mu"], (h @ p["value"])[..., 0]


def rollout(p, state, key):
    def one(state, key):
        obs = observe(state)
        mu, _ = policy(p, obs)
        action = mu + 0.3 * jax.random.normal(key, mu.shape)
        state, reward = move(state, action)
        return state, Transition(obs, action, reward)

    return lax.scan(one, state, jax.random.split(key, STEPS))


def a2c_loss(p, batch, returns):
    mu, value = policy(p, batch.obs)
    log_prob = -jnp.sum((batch.action - mu) ** 2, -1) / (2 * 0.3**2)
    advantage = lax.stop_gradient(returns - value)
    return jnp.mean((returns - value) ** 2) - jnp.mean(log_prob * advantage)


def program(devices, place):
    mesh = Mesh(np.array(devices), ("env",))

    def iteration(p, key):
        start, noise = jax.random.split(key)
        state = reset(start)  # FAULT
        state = place(state, NamedSharding(mesh, P("env")))  # FAULT
        _, batch = rollout(p, state, noise)
        _, returns = lax.scan(lambda g, r: (r + 0.99 * g,) * 2, jnp.zeros_like(batch.reward[0]), batch.reward, reverse=True)
        grads = jax.grad(a2c_loss)(p, batch, returns)
        return jax.tree.map(lambda w, g: w - 3e-4 * g, p, grads), jnp.mean(batch.reward)

    shapes = {"w0": (OBS, 64), "b0": (64,), "w1": (64, 64), "b1": (64,), "mu": (64, ACT), "value": (64, 1)}
    rep = NamedSharding(mesh, P())
    p = {n: jax.ShapeDtypeStruct(s, jnp.float32, sharding=rep) for n, s in shapes.items()}
    return jax.jit(iteration, donate_argnums=0), (p, jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep))


def forgetful(state, sharding):
    lax.with_sharding_constraint(state, sharding)  # FAULT
    return state  # FAULT


def make_faulty(devices):
    return program(devices, forgetful)


def make_fixed(devices):
    return program(devices, lax.with_sharding_constraint)
