# mypy: ignore-errors
"""Clean. PPO on pixels with plain data parallelism: a small convolutional policy is copied to every
device (about 5 MB with its moments), the rollout is divided over the environments."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

ENVS, HORIZON, ACTIONS = 64, 32, 18
MINIBATCHES = 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Rollout(NamedTuple):
    """Leaves are (env, time, ...)."""

    frames: jax.Array
    actions: jax.Array
    logp: jax.Array
    values: jax.Array
    rewards: jax.Array
    dones: jax.Array


class ActorCritic(nnx.Module):
    def __init__(self, rngs):
        self.c1 = nnx.Conv(4, 16, (8, 8), (4, 4), padding="VALID", rngs=rngs)
        self.c2 = nnx.Conv(16, 32, (4, 4), (2, 2), padding="VALID", rngs=rngs)
        self.c3 = nnx.Conv(32, 32, (3, 3), padding="VALID", rngs=rngs)
        self.fc = nnx.Linear(7 * 7 * 32, 256, rngs=rngs)
        self.pi = nnx.Linear(256, ACTIONS, rngs=rngs)
        self.v = nnx.Linear(256, 1, rngs=rngs)

    def __call__(self, frames):
        x = frames.astype(jnp.float32) / 255.0
        for conv in (self.c1, self.c2, self.c3):
            x = nnx.relu(conv(x))
        x = nnx.relu(self.fc(x.reshape(x.shape[0], -1)))
        return self.pi(x), self.v(x)[:, 0]


def advantages(r, last_value):
    """Generalised advantage estimation, backwards over time."""

    def back(carry, t):
        adv, nxt = carry
        reward, done, value = t
        live = 1.0 - done
        adv = reward + GAMMA * live * nxt - value + GAMMA * LAMBDA * live * adv
        return (adv, value), adv

    xs = tuple(jnp.moveaxis(a, 1, 0) for a in (r.rewards, r.dones, r.values))
    _, adv = jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), xs, reverse=True)
    return jnp.moveaxis(adv, 0, 1)


def ppo_loss(net, r, adv):
    flat = lambda a: a.reshape(-1, *a.shape[2:])
    logits, value = net(flat(r.frames))
    logp_all = jax.nn.log_softmax(logits)
    logp = jnp.take_along_axis(logp_all, flat(r.actions)[:, None], axis=1)[:, 0]
    ratio, a = jnp.exp(logp - flat(r.logp)), flat(adv)
    policy = -jnp.minimum(ratio * a, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * a).mean()
    critic = 0.5 * jnp.square(value - flat(r.values + adv)).mean()
    entropy = -(jnp.exp(logp_all) * logp_all).sum(-1).mean()
    return policy + 0.5 * critic - 0.01 * entropy


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("env",))
    copy, by_env = NamedSharding(mesh, P()), NamedSharding(mesh, P("env"))
    by_step = NamedSharding(mesh, P(None, "env"))
    graph, params = nnx.split(nnx.eval_shape(lambda: ActorCritic(nnx.Rngs(0))))
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4))
    opt_state = jax.eval_shape(tx.init, params)

    def learn(params, opt_state, rollout, last_value):
        adv = advantages(rollout, last_value)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        def minibatch(carry, part):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(lambda p: ppo_loss(nnx.merge(graph, p), *part))(params)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        # minibatches are pieces of time, so that each keeps all environments on their devices
        def cut(a):
            a = a.reshape(a.shape[0], MINIBATCHES, -1, *a.shape[2:]).swapaxes(0, 1)
            return jax.lax.with_sharding_constraint(a, by_step)

        parts = jax.tree.map(cut, (rollout, adv))
        (params, opt_state), losses = jax.lax.scan(minibatch, (params, opt_state), parts)
        return params, opt_state, losses.mean()

    shape = lambda dtype, *s: jax.ShapeDtypeStruct((ENVS, *s), dtype, sharding=by_env)
    series = [shape(t, HORIZON) for t in (jnp.int32, jnp.float32, jnp.float32, jnp.float32, jnp.float32)]
    rollout = Rollout(shape(jnp.uint8, HORIZON, 84, 84, 4), *series)
    put = lambda tree: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=copy), tree)
    fn = jax.jit(learn, out_shardings=copy, donate_argnums=(0, 1))
    return fn, (put(params), put(opt_state), rollout, shape(jnp.float32))
