# mypy: ignore-errors
"""Fault: stack. The environments are reset without being placed on the "env" axis, so every device plays all of them and
the scan stacks the whole trajectory of frames on each device."""
import collections

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N_ENVS, HORIZON, SCREEN, ACTIONS, HIDDEN = 256, 64, 84, 6, 256

EnvState = collections.namedtuple("EnvState", "ball velocity paddle clock")
Transition = collections.namedtuple("Transition", "frame action logp value reward done")


class Paddle:
    """A tiny breakout-like environment, rendered to an image."""

    def reset(self, key):
        a, b = jax.random.split(key)
        return EnvState(
            ball=jax.random.uniform(a, (2,), minval=0.2, maxval=0.8),
            velocity=jax.random.normal(b, (2,)) * 0.02,
            paddle=jnp.float32(0.5),
            clock=jnp.int32(0),
        )

    def render(self, s):
        g = (jnp.arange(SCREEN) + 0.5) / SCREEN
        ball = jnp.exp(-((g[:, None] - s.ball[1]) ** 2 + (g[None, :] - s.ball[0]) ** 2) * 900.0)
        bar = jnp.exp(-((g[:, None] - 0.95) ** 2) * 4e3 - ((g[None, :] - s.paddle) ** 2) * 60.0)
        return jnp.maximum(ball, bar)

    def step(self, s, action):
        paddle = jnp.clip(s.paddle + (action - ACTIONS // 2) * 0.02, 0.0, 1.0)
        ball = s.ball + s.velocity
        velocity = jnp.where((ball < 0.0) | (ball > 1.0), -s.velocity, s.velocity)
        hit = (ball[1] > 0.93) & (jnp.abs(ball[0] - paddle) < 0.1)
        return EnvState(jnp.clip(ball, 0, 1), velocity, paddle, s.clock + 1), hit.astype(jnp.float32), s.clock > 500


def policy(params, frame):
    x = frame.reshape(frame.shape[0], -1)
    x = jax.nn.relu(x @ params["w0"])
    x = jax.nn.relu(x @ params["w1"])
    return x @ params["pi"], (x @ params["v"])[:, 0]


def make_iteration(env, place):
    def iteration(params, key):
        key, sub = jax.random.split(key)
        states = place(jax.vmap(env.reset)(jax.random.split(sub, N_ENVS)))  # FAULT

        def act(carry, key):
            states = carry
            frame = jax.vmap(env.render)(states)
            logits, value = policy(params, frame)
            action = jax.random.categorical(key, logits)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            states, reward, done = jax.vmap(env.step)(states, action)
            return states, Transition(frame, action, logp, value, reward, done)

        states, traj = jax.lax.scan(act, states, jax.random.split(key, HORIZON))
        _, last_value = policy(params, jax.vmap(env.render)(states))

        def gae(carry, t):
            adv, nxt = carry
            delta = t.reward + 0.99 * nxt * (1 - t.done) - t.value
            adv = delta + 0.99 * 0.95 * (1 - t.done) * adv
            return (adv, t.value), adv

        _, adv = jax.lax.scan(gae, (jnp.zeros_like(last_value), last_value), traj, reverse=True)

        def surrogate(p, t, a):
            logits, value = policy(p, t.frame)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), t.action[:, None], 1)[:, 0]
            ratio = jnp.exp(logp - t.logp)
            clipped = jnp.minimum(ratio * a, jnp.clip(ratio, 0.8, 1.2) * a)
            return jnp.mean(0.5 * (value - (a + t.value)) ** 2 - clipped)

        def sgd(p, minibatch):
            g = jax.grad(surrogate)(p, *minibatch)
            return jax.tree.map(lambda w, gw: w - 3e-4 * gw, p, g), None

        params_new, _ = jax.lax.scan(sgd, params, (traj, adv))
        return params_new, jnp.sum(traj.reward)

    return iteration


def prepare(devices, axis):
    mesh = Mesh(np.array(devices), ("env",))
    rep = NamedSharding(mesh, P())
    if axis is None:
        place = lambda tree: tree
    else:
        place = lambda tree: jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P(axis)))
    shapes = {"w0": (SCREEN * SCREEN, HIDDEN), "w1": (HIDDEN, HIDDEN), "pi": (HIDDEN, ACTIONS), "v": (HIDDEN, 1)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=rep) for k, s in shapes.items()}
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep)
    return jax.jit(make_iteration(Paddle(), place), out_shardings=rep), (params, key)


def make_faulty(devices):
    return prepare(devices, axis=None)


def make_fixed(devices):
    return prepare(devices, axis="env")
