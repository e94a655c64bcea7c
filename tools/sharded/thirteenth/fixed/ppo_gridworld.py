# mypy: ignore-errors
"""Fixed."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
N_ENVS, N_TEST, HORIZON, OBS, ACTIONS, HIDDEN = 4096, 1024, 64, 64, 6, 128
GAMMA, LAMBDA, CLIP, EPOCHS = 0.99, 0.95, 0.2, 2


class EnvState(NamedTuple):
    body: jax.Array
    goal: jax.Array
    t: jax.Array


class Step(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def reset(key):
    return EnvState(*jax.random.normal(key, (2, OBS // 2)), jnp.int32(0))


def observe(s):
    return jnp.concatenate([s.body, s.goal - s.body])


def env_step(s, action):
    push = jnp.roll(s.goal - s.body, action) * 0.1
    body = s.body + push
    reward = -jnp.mean((s.goal - body) ** 2)
    done = s.t >= 200
    return EnvState(jnp.where(done, 0.0, body), s.goal, jnp.where(done, 0, s.t + 1)), reward, done.astype(jnp.float32)


def policy(params, obs):
    h = jnp.tanh(obs @ params["w1"] + params["b1"])
    h = jnp.tanh(h @ params["w2"] + params["b2"])
    return jax.nn.log_softmax(h @ params["pi"]), (h @ params["v"])[..., 0]


def gae(traj, last_value):
    def back(carry, s):
        adv, nxt = carry
        delta = s.reward + GAMMA * nxt * (1 - s.done) - s.value
        adv = delta + GAMMA * LAMBDA * (1 - s.done) * adv
        return (adv, s.value), adv

    _, adv = jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), traj, reverse=True)
    return adv


def ppo_loss(params, traj, adv):
    logits, value = policy(params, traj.obs)
    logp = jnp.take_along_axis(logits, traj.action[..., None], -1)[..., 0]
    ratio = jnp.exp(logp - traj.logp)
    gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * adv)
    entropy = -(jnp.exp(logits) * logits).sum(-1)
    return -gain.mean() + 0.5 * jnp.square(value - (traj.value + adv)).mean() - 0.01 * entropy.mean()


def make_iteration(mesh, opt):
    by_env = lambda tree: jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P("env")))

    def iteration(params, opt_state, key):
        k_reset, k_act, k_test = jax.random.split(key, 3)
        envs = by_env(jax.vmap(reset)(jax.random.split(k_reset, N_ENVS)))

        def rollout(envs, k):
            obs = jax.vmap(observe)(envs)
            logits, value = policy(params, obs)
            action = jax.random.categorical(k, logits)
            logp = jnp.take_along_axis(logits, action[:, None], -1)[:, 0]
            envs, *outcome = jax.vmap(env_step)(envs, action)
            return envs, Step(obs, action, logp, value, *outcome)

        envs, traj = jax.lax.scan(rollout, envs, jax.random.split(k_act, HORIZON))
        adv = gae(traj, policy(params, jax.vmap(observe)(envs))[1])
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        def epoch(carry, _):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(ppo_loss)(params, traj, adv)
            updates, opt_state = opt.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), loss

        (params, opt_state), losses = jax.lax.scan(epoch, (params, opt_state), None, EPOCHS)
        return params, opt_state, {"loss": losses.mean(), "return": traj.reward.sum(0).mean(), "test": test(params, k_test)}

    def test(params, key):
        def greedy(envs, _):
            action = policy(params, jax.vmap(observe)(envs))[0].argmax(-1)
            envs, reward, _ = jax.vmap(env_step)(envs, action)
            return envs, reward.mean()

        envs = by_env(jax.vmap(reset)(jax.random.split(key, N_TEST)))
        return jax.lax.scan(greedy, envs, None, HORIZON)[1].sum()

    return iteration


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("env",))
    opt = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))
    sizes = dict(w1=(OBS, HIDDEN), b1=(HIDDEN,), w2=(HIDDEN, HIDDEN), b2=(HIDDEN,), pi=(HIDDEN, ACTIONS), v=(HIDDEN, 1))
    params = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in sizes.items()}
    whole = NamedSharding(mesh, P())
    fn = jax.jit(make_iteration(mesh, opt), in_shardings=whole, donate_argnums=(0, 1))
    return fn, (params, jax.eval_shape(opt.init, params), jax.eval_shape(lambda: jax.random.key(0)))
