# mypy: ignore-errors
"""Clean. The environments' state is pinned at the reset, the stacked rollout follows it.

PPO on a chain of masses and springs, environment and learner in one jitted function; linen actor-critic.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N_ENVS, STEPS, MASSES, ACTIONS = 1024, 64, 96, 8
EPOCHS, GAMMA, LAMBDA, CLIP = 4, 0.99, 0.95, 0.2


class ActorCritic(nn.Module):
    hidden: int = 256

    @nn.compact
    def __call__(self, obs):
        x = nn.tanh(nn.Dense(self.hidden)(obs))
        x = nn.tanh(nn.Dense(self.hidden)(x))
        mean = nn.Dense(ACTIONS, kernel_init=nn.initializers.orthogonal(0.01))(x)
        log_std = self.param("log_std", nn.initializers.zeros, (ACTIONS,))
        return mean, log_std, nn.Dense(1)(x)[..., 0]


def reset(key):
    position, velocity = 0.1 * jax.random.normal(key, (2, MASSES))
    return {"position": position, "velocity": velocity}


def observe(env):
    return jnp.concatenate([env["position"], env["velocity"], jnp.diff(env["position"], append=0.0)])


def advance(env, action):
    x, v = env["position"], env["velocity"]
    force = jnp.roll(x, 1) + jnp.roll(x, -1) - 2 * x - 0.1 * x**3 - 0.05 * v
    force = force.at[: ACTIONS * 12].add(jnp.repeat(jnp.clip(action, -1, 1), 12))
    v = v + 0.05 * force
    x = x + 0.05 * v
    return {"position": x, "velocity": v}, -jnp.mean(x * x) - 0.01 * jnp.mean(action**2)


def log_prob(action, mean, log_std):
    z = (action - mean) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * z * z + log_std + 0.9189385, axis=-1)


def advantages(reward, value, last):
    def back(carry, rv):
        gae, following = carry
        reward, value = rv
        gae = reward + GAMMA * following - value + GAMMA * LAMBDA * gae
        return (gae, value), gae

    _, gae = jax.lax.scan(back, (jnp.zeros_like(last), last), (reward, value), reverse=True)
    return gae


def ppo_loss(params, model, rollout, gae):
    mean, log_std, value = model.apply(params, rollout["obs"])
    ratio = jnp.exp(log_prob(rollout["action"], mean, log_std) - rollout["log_prob"])
    gain = (gae - gae.mean()) / (gae.std() + 1e-8)
    policy = -jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain).mean()
    critic = jnp.mean((value - rollout["value"] - gae) ** 2)
    return policy + 0.5 * critic - 1e-3 * log_std.sum()


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("env",))
    whole = NamedSharding(mesh, P())
    model = ActorCritic()
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))

    def collect(params, env, key):
        def one(env, key):
            obs = jax.vmap(observe)(env)
            mean, log_std, value = model.apply(params, obs)
            action = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
            following, reward = jax.vmap(advance)(env, action)
            kept = {"obs": obs, "action": action, "reward": reward, "value": value}
            return following, kept | {"log_prob": log_prob(action, mean, log_std)}

        env, rollout = jax.lax.scan(one, env, jax.random.split(key, STEPS))
        return rollout, model.apply(params, jax.vmap(observe)(env))[2]

    def iteration(params, opt_state, key):
        reset_key, act_key = jax.random.split(key)
        env = jax.vmap(reset)(jax.random.split(reset_key, N_ENVS))
        env = jax.lax.with_sharding_constraint(env, NamedSharding(mesh, P("env")))
        rollout, last = collect(params, env, act_key)
        gae = advantages(rollout["reward"], rollout["value"], last)

        def epoch(carry, _):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(ppo_loss)(params, model, rollout, gae)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        (params, opt_state), losses = jax.lax.scan(epoch, (params, opt_state), None, length=EPOCHS)
        return params, opt_state, {"loss": losses[-1], "reward": rollout["reward"].mean()}

    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 3 * MASSES)))
    args = (params, jax.eval_shape(tx.init, params), jax.ShapeDtypeStruct((2,), jnp.uint32))
    args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), args)
    return jax.jit(iteration, donate_argnums=(0, 1), out_shardings=whole), args
