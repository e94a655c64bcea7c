# mypy: ignore-errors
"""Clean. Proximal policy optimisation of an equinox policy on a swarm of randomised cart-poles: a scan rolls all
environments out, split over the chips, and the update runs over pieces of the horizon."""
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

ENVIRONMENTS, HORIZON, PIECE = 65536, 96, 6
GAMMA, LAMBDA, CLIP, SIGMA = 0.99, 0.95, 0.2, 0.4


class World(NamedTuple):
    body: jax.Array
    length: jax.Array
    mass: jax.Array


class Transition(NamedTuple):
    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array


class Agent(eqx.Module):
    policy: eqx.nn.MLP
    critic: eqx.nn.MLP

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.policy = eqx.nn.MLP(7, 1, 128, 2, key=first)
        self.critic = eqx.nn.MLP(7, 1, 128, 2, key=second)

    def __call__(self, observation):
        return jnp.tanh(self.policy(observation)[0]) * 10.0, self.critic(observation)[0]


def observe(world):
    x, dx, angle, spin = world.body.T
    return jnp.stack([x, dx, jnp.sin(angle), jnp.cos(angle), spin, world.length, world.mass], axis=-1)


def physics(world, force):
    x, dx, angle, spin = world.body.T
    total = 1.0 + world.mass
    inner = (force + world.mass * world.length * spin**2 * jnp.sin(angle)) / total
    turning = 9.8 * jnp.sin(angle) - jnp.cos(angle) * inner
    turning = turning / (world.length * (4.0 / 3.0 - world.mass * jnp.cos(angle) ** 2 / total))
    pushing = inner - world.mass * world.length * turning * jnp.cos(angle) / total
    body = jnp.stack([x + 0.02 * dx, dx + 0.02 * pushing, angle + 0.02 * spin, spin + 0.02 * turning], axis=-1)
    return world._replace(body=body), jnp.cos(angle) - 0.01 * x**2 - 0.001 * force**2


def log_density(action, mean):
    return -0.5 * ((action - mean) / SIGMA) ** 2


def make_update(mesh, optimizer, static):
    def by_environment(tree):
        sharding = NamedSharding(mesh, P("env"))
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, sharding), tree)

    def rollout(agent, world, key):
        def tick(world, key):
            observation = observe(world)
            mean, value = jax.vmap(agent)(observation)
            action = mean + SIGMA * jax.random.normal(key, (ENVIRONMENTS,))
            world, reward = physics(world, action)
            found = Transition(observation, action, log_density(action, mean), value, reward)
            return by_environment(world), by_environment(found)

        return jax.lax.scan(tick, world, jax.random.split(key, HORIZON))

    def advantages(path):
        def back(carry, step):
            advantage, following = carry
            delta = step.reward + GAMMA * following - step.value
            advantage = delta + GAMMA * LAMBDA * advantage
            return (advantage, step.value), advantage

        last = jnp.zeros_like(path.value[-1])
        return jax.lax.scan(back, (last, path.value[-1]), path, reverse=True)[1]

    def loss_fn(weights, piece, advantage):
        agent = eqx.combine(weights, static)
        mean, value = jax.vmap(jax.vmap(agent))(piece.observation)
        ratio = jnp.exp(log_density(piece.action, mean) - piece.log_prob)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
        return -gain.mean() + 0.5 * jnp.mean((value - piece.value - advantage) ** 2)

    def update(weights, state, world, seed):
        world, path = rollout(eqx.combine(weights, static), world, jax.random.key(seed))
        advantage = advantages(path)

        def learn(carry, start):
            weights, state = carry
            piece, gain = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, PIECE), (path, advantage))
            loss, grads = jax.value_and_grad(loss_fn)(weights, piece, gain)
            updates, state = optimizer.update(grads, state, weights)
            return (optax.apply_updates(weights, updates), state), loss

        (weights, state), losses = jax.lax.scan(learn, (weights, state), jnp.arange(0, HORIZON, PIECE))
        return weights, state, world, losses.mean()

    return update


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4), ("env",))
    optimizer = optax.adam(3e-4)
    shapes = eqx.filter_eval_shape(Agent, jax.random.key(0))
    weights, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    state = jax.eval_shape(optimizer.init, weights)

    def place(tree, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)

    world = World(*(jax.ShapeDtypeStruct((ENVIRONMENTS, *more), jnp.float32) for more in ((4,), (), ())))
    seed = jax.ShapeDtypeStruct((), jnp.uint32)
    update = make_update(mesh, optimizer, static)
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("env"))
    jitted = jax.jit(update, out_shardings=(whole, whole, split, whole), donate_argnums=(0, 1, 2))
    return jitted, (place(weights, P()), place(state, P()), place(world, P("env")), place(seed, P()))
