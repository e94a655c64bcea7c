# mypy: ignore-errors
"""Clean. A PPO learner: the policy is small and whole on every chip, the trajectories are split by environment and the
minibatches are cut along time, so that every chip works on its own environments."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    envs: int = 16_384
    horizon: int = 128
    obs: int = 512
    actions: int = 16
    minibatches: int = 8
    clip: float = 0.2
    entropy: float = 0.01


class ActorCritic(nn.Module):
    actions: int

    @nn.compact
    def __call__(self, obs):
        h = obs
        for width in (512, 256):
            h = nn.tanh(nn.LayerNorm()(nn.Dense(width)(h)))
        return nn.Dense(self.actions)(h), nn.Dense(1)(h)[..., 0]


def advantages(rewards, values, last, gamma=0.99, lam=0.95):
    def back(carry, rv):
        adv, nxt = carry
        reward, value = rv
        adv = reward + gamma * nxt - value + gamma * lam * adv
        return (adv, value), adv

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (rewards, values), reverse=True)[1]


def make_clean(devices):
    cfg = PPOConfig()
    mesh = Mesh(np.array(devices), ("env",))
    whole, by_env = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "env"))
    net = ActorCritic(cfg.actions)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4))

    def init(key):
        params = net.init(key, jnp.zeros((1, cfg.obs)))
        return params, tx.init(params)

    def loss_fn(params, batch):
        logits, value = net.apply(params, batch["obs"].astype(jnp.float32))
        logp = jax.nn.log_softmax(logits)
        taken = jnp.sum(logp * jax.nn.one_hot(batch["action"], cfg.actions), axis=-1)
        ratio = jnp.exp(taken - batch["logp"])
        adv = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-8)
        policy = -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - cfg.clip, 1 + cfg.clip) * adv).mean()
        critic = 0.5 * jnp.mean((value - batch["adv"] - batch["value"]) ** 2)
        entropy = -jnp.mean(jnp.sum(jnp.exp(logp) * logp, axis=-1))
        return policy + critic - cfg.entropy * entropy

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(whole, whole))
    def learn(state, traj, last_value):
        adv = advantages(traj["reward"], traj["value"], last_value)
        data = {"adv": adv} | {k: traj[k] for k in ("obs", "action", "logp", "value")}
        steps = cfg.horizon // cfg.minibatches
        pieces = jax.tree.map(lambda a: a.reshape(cfg.minibatches, steps, *a.shape[1:]), data)

        def update(state, batch):
            params, opt = state
            loss, grads = jax.value_and_grad(loss_fn)(params, batch)
            updates, opt = tx.update(grads, opt, params)
            return (optax.apply_updates(params, updates), opt), loss

        state, losses = jax.lax.scan(update, state, pieces)
        return state, losses.mean()

    state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), jax.eval_shape(init, jax.random.key(0)))

    def per_step(dtype, *extra):
        return jax.ShapeDtypeStruct((cfg.horizon, cfg.envs, *extra), dtype, sharding=by_env)

    traj = {
        "obs": per_step(jnp.bfloat16, cfg.obs),
        "action": per_step(jnp.int32),
        "logp": per_step(jnp.float32),
        "value": per_step(jnp.float32),
        "reward": per_step(jnp.float32),
    }
    last = jax.ShapeDtypeStruct((cfg.envs,), jnp.float32, sharding=NamedSharding(mesh, P("env")))
    return learn, (state, traj, last)
