# mypy: ignore-errors
"""Fault: stack. The environments are reset inside the jitted step without a sharding, so the rollout scan steps all of them on
every device and its stacked trajectory (observations, actions, values) is held whole eight times."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

NUM_ENVS, HORIZON, OBS, ACT, HIDDEN = 8192, 64, 96, 12, 256
GAMMA, LAM, CLIP = 0.99, 0.95, 0.2


class EnvState(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    target: jax.Array
    t: jax.Array


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def env_reset(key):
    a, b, c = jax.random.split(key, 3)
    shape = (NUM_ENVS, OBS // 3)
    return EnvState(jax.random.uniform(a, shape, minval=-1.0), 0.1 * jax.random.normal(b, shape),
                    jax.random.uniform(c, shape, minval=-1.0), jnp.zeros((NUM_ENVS,), jnp.int32))


def observe(s):
    return jnp.concatenate([s.pos, s.vel, s.target - s.pos], axis=-1)


def env_step(s, action, actuator):
    force = jnp.tanh(action) @ actuator
    vel = 0.95 * s.vel + 0.05 * force - 0.01 * s.pos
    pos = s.pos + 0.05 * vel
    t = s.t + 1
    reward = -jnp.sum((pos - s.target) ** 2, -1) - 1e-3 * jnp.sum(action**2, -1)
    done = t >= 200
    t = jnp.where(done, 0, t)
    pos = jnp.where(done[:, None], 0.0, pos)
    return EnvState(pos, vel, s.target, t), reward, done.astype(jnp.float32)


def policy(params, obs):
    h = jnp.tanh(obs @ params["w1"] + params["b1"])
    h = jnp.tanh(h @ params["w2"] + params["b2"])
    return h @ params["mu"], params["log_std"], (h @ params["v"])[..., 0]


def log_prob(mu, log_std, a):
    return jnp.sum(-0.5 * ((a - mu) / jnp.exp(log_std)) ** 2 - log_std - 0.919, -1)


def param_shapes():
    return {"w1": (OBS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, HIDDEN), "b2": (HIDDEN,), "mu": (HIDDEN, ACT),
            "log_std": (ACT,), "v": (HIDDEN, 1)}


def make_train(mesh, tx, place):
    def rollout(params, actuator, key):
        k_reset, k_act = jax.random.split(key)
        env = place(env_reset(k_reset))  # FAULT

        def tick(env, k):
            obs = observe(env)
            mu, log_std, value = policy(params, obs)
            action = mu + jnp.exp(log_std) * jax.random.normal(k, mu.shape)
            nxt, reward, done = env_step(env, action, actuator)
            return nxt, Transition(obs, action, log_prob(mu, log_std, action), value, reward, done)

        env, traj = jax.lax.scan(tick, env, jax.random.split(k_act, HORIZON))  # FAULT
        return traj, policy(params, observe(env))[2]

    def advantages(traj, last):
        def back(carry, tr):
            gae, nxt = carry
            delta = tr.reward + GAMMA * nxt * (1 - tr.done) - tr.value
            gae = delta + GAMMA * LAM * (1 - tr.done) * gae
            return (gae, tr.value), gae

        return jax.lax.scan(back, (jnp.zeros_like(last), last), traj, reverse=True)[1]

    def loss_fn(params, mb):
        tr, adv = mb
        mu, log_std, v = policy(params, tr.obs)
        ratio = jnp.exp(log_prob(mu, log_std, tr.action) - tr.logp)
        n = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -jnp.minimum(ratio * n, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * n).mean()
        return pg + 0.5 * jnp.mean((v - (adv + tr.value)) ** 2)

    def train(params, opt, actuator, key):
        traj, last = rollout(params, actuator, key)
        adv = advantages(traj, last)

        def minibatch(carry, mb):
            params, opt = carry
            loss, g = jax.value_and_grad(loss_fn)(params, mb)
            up, opt = tx.update(g, opt, params)
            return (optax.apply_updates(params, up), opt), loss

        mbs = jax.tree.map(lambda a: a.reshape(8, HORIZON // 8, *a.shape[1:]), (traj, adv))
        (params, opt), losses = jax.lax.scan(minibatch, (params, opt), mbs)
        return params, opt, losses.mean()

    return train


def build(devices, split_envs):
    mesh = Mesh(np.array(devices), ("env",))
    whole, by_env = NamedSharding(mesh, P()), NamedSharding(mesh, P("env"))
    tx = optax.adam(3e-4)

    def place(env):
        if not split_envs:
            return env
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, by_env), env)

    def rep(tree):
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=whole), tree)

    params = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in param_shapes().items()}
    opt = jax.eval_shape(tx.init, params)
    actuator = jax.ShapeDtypeStruct((ACT, OBS // 3), jnp.float32, sharding=whole)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=whole)
    return jax.jit(make_train(mesh, tx, place), donate_argnums=(0, 1)), (rep(params), rep(opt), actuator, key)


def make_faulty(devices):
    return build(devices, split_envs=False)


def make_fixed(devices):
    return build(devices, split_envs=True)
