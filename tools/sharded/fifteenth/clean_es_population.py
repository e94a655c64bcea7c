# mypy: ignore-errors
"""Clean. Evolution strategies for a controller: the small centre and the normalisation of the observations are whole, the population,
its simulators and its noise are divided over all chips."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
POPULATION, LINKS, HIDDEN, HORIZON, AXES = 8192, 64, 256, 64, ("y", "x")
OBS, ACT = 2 * LINKS, LINKS
SHAPES = {"w1": (OBS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, HIDDEN), "b2": (HIDDEN,), "w3": (HIDDEN, ACT)}


def policy(p, obs):
    h = jnp.tanh(obs @ p["w1"] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return jnp.tanh(h @ p["w3"])


def physics(angle, speed, torque):
    """A chain of coupled pendulums."""
    pull = jnp.pad(angle, 1)[2:] + jnp.pad(angle, 1)[:-2] - 2 * angle
    speed = 0.99 * speed + 0.05 * (torque - jnp.sin(angle) + pull)
    return angle + 0.05 * speed, speed


def episode(p, mean, std, angle):
    def tick(state, _):
        obs = jnp.concatenate(state)
        torque = policy(p, (obs - mean) / std)
        state = physics(*state, torque)
        return state, (jnp.cos(state[0]).mean() - 1e-3 * jnp.sum(torque**2), obs)

    _, (reward, seen) = lax.scan(tick, (angle, jnp.zeros_like(angle)), length=HORIZON)
    return reward.sum(), seen.mean(0), (seen**2).mean(0)


def noise_like(key, count):
    keys = jax.random.split(key, len(SHAPES))
    return {n: jax.random.normal(k, (count, *s)) for (n, s), k in zip(SHAPES.items(), keys)}


def generation(centre, momentum, norm, starts, seed):
    """On one chip: its part of the population, in mirrored pairs."""
    half = starts.shape[0] // 2
    noise = noise_like(jax.random.fold_in(jax.random.key(seed), lax.axis_index(AXES)), half)
    mean, square = norm
    std = jnp.sqrt(square - mean**2 + 1e-4)
    run = jax.vmap(episode, in_axes=(0, None, None, 0))
    plus = jax.tree.map(lambda c, n: c + 0.05 * n, centre, noise)
    minus = jax.tree.map(lambda c, n: c - 0.05 * n, centre, noise)
    up, m1, s1 = run(plus, mean, std, starts[:half])
    down, m2, s2 = run(minus, mean, std, starts[half:])
    returns = lax.all_gather(jnp.stack([up, down]), AXES, axis=1, tiled=True)
    scale = returns.std() + 1e-6
    estimate = jax.tree.map(lambda n: lax.pmean(jnp.tensordot((up - down) / scale, n, 1) / half, AXES), noise)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, estimate)
    centre = jax.tree.map(lambda c, m: c + 0.02 * m, centre, momentum)
    new = tuple(lax.pmean((a.mean(0) + b.mean(0)) / 2, AXES) for a, b in ((m1, m2), (s1, s2)))
    norm = jax.tree.map(lambda o, n: 0.95 * o + 0.05 * n, norm, new)
    return centre, momentum, norm, returns


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), AXES)
    sds = lambda s, spec=P(), d=jnp.float32: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, spec))
    centre = {n: sds(s) for n, s in SHAPES.items()}
    body = jax.shard_map(generation, mesh=mesh, in_specs=(P(), P(), P(), P(AXES), P()), out_specs=P(), check_vma=False)
    step = functools.partial(jax.jit, donate_argnums=(0, 1, 2))(body)
    return step, (centre, centre, (sds((OBS,)), sds((OBS,))), sds((POPULATION, LINKS), P(AXES)), sds((), P(), jnp.int32))
