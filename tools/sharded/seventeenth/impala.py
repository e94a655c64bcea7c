# mypy: ignore-errors
"""Fault: reshard. Time-major frames whose second dimension (actors) is split are flattened to
(time * actors); the split dimension ends inside the merged one, so each device gathers all frames.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

UNROLL = 20
ACTORS = 384
FRAME = (84, 84, 4)
ACTIONS = 18
CONVS = ((8, 4, 16), (4, 2, 32))
TORSO = 256
GAMMA, RHO_MAX, ENTROPY = 0.99, 1.0, 0.01


class Rollout(NamedTuple):
    """Time-major, as the actors write it: (time, actor, ...)."""

    frames: jax.Array
    actions: jax.Array
    rewards: jax.Array
    discounts: jax.Array
    behaviour_logits: jax.Array


def init(key):
    params, depth = {}, FRAME[-1]
    for i, (size, _, out) in enumerate(CONVS):
        key, sub = jax.random.split(key)
        scale = (size * size * depth) ** -0.5
        params[f"conv{i}"] = {
            "w": scale * jax.random.normal(sub, (size, size, depth, out)),
            "b": jnp.zeros((out,)),
        }
        depth = out
    k1, k2, k3 = jax.random.split(key, 3)
    flat = 11 * 11 * depth
    params["torso"] = {"w": flat**-0.5 * jax.random.normal(k1, (flat, TORSO)), "b": jnp.zeros((TORSO,))}
    params["policy"] = {"w": 0.01 * jax.random.normal(k2, (TORSO, ACTIONS)), "b": jnp.zeros((ACTIONS,))}
    params["value"] = {"w": 0.01 * jax.random.normal(k3, (TORSO, 1)), "b": jnp.zeros((1,))}
    return params


def dense(p, x):
    return x @ p["w"] + p["b"]


def encode(params, images):
    x = images
    for i, (_, stride, _) in enumerate(CONVS):
        p = params[f"conv{i}"]
        x = jax.lax.conv_general_dilated(
            x, p["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + p["b"])
    return jax.nn.relu(dense(params["torso"], x.reshape(x.shape[0], -1)))


def network(params, frames, rows):
    steps, actors = frames.shape[:2]
    images = frames.reshape(steps * actors, *frames.shape[2:])  # FAULT
    images = jax.lax.with_sharding_constraint(images, rows)
    features = encode(params, images.astype(jnp.float32) / 255.0)
    features = features.reshape(steps, actors, TORSO)
    return dense(params["policy"], features), dense(params["value"], features)[..., 0]


def vtrace(values, bootstrap, rewards, discounts, rho):
    clipped = jnp.minimum(rho, RHO_MAX)
    following = jnp.concatenate([values[1:], bootstrap[None]])
    deltas = clipped * (rewards + discounts * following - values)

    def back(acc, item):
        delta, discount, c = item
        acc = delta + discount * c * acc
        return acc, acc

    _, errors = jax.lax.scan(back, jnp.zeros_like(bootstrap), (deltas, discounts, clipped), reverse=True)
    targets = errors + values
    after = jnp.concatenate([targets[1:], bootstrap[None]])
    return targets, clipped * (rewards + discounts * after - values)


def loss_fn(params, batch, rows):
    logits, values = network(params, batch.frames, rows)
    logp = jax.nn.log_softmax(logits[:-1])
    taken = batch.actions[..., None]
    ours = jnp.take_along_axis(logp, taken, -1)[..., 0]
    theirs = jnp.take_along_axis(jax.nn.log_softmax(batch.behaviour_logits), taken, -1)[..., 0]
    rho = jnp.exp(jax.lax.stop_gradient(ours) - theirs)
    fixed = jax.lax.stop_gradient(values)
    targets, advantage = vtrace(fixed[:-1], fixed[-1], batch.rewards, GAMMA * batch.discounts, rho)
    entropy = -jnp.sum(jnp.exp(logp) * logp, -1)
    return jnp.mean(-ours * advantage + 0.5 * (targets - values[:-1]) ** 2 - ENTROPY * entropy)


def step(params, state, batch, *, tx, rows):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch, rows)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("learner",))
    whole = NamedSharding(mesh, P())
    by_actor = NamedSharding(mesh, P(None, "learner"))
    rows = NamedSharding(mesh, P("learner"))
    tx = optax.chain(optax.clip_by_global_norm(40.0), optax.rmsprop(6e-4, decay=0.99, eps=0.1))
    params = jax.eval_shape(init, jax.random.key(0))
    state = jax.eval_shape(tx.init, params)
    place = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), tree)
    field = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=by_actor)
    batch = Rollout(
        frames=field((UNROLL + 1, ACTORS, *FRAME), jnp.uint8),
        actions=field((UNROLL, ACTORS), jnp.int32),
        rewards=field((UNROLL, ACTORS), jnp.float32),
        discounts=field((UNROLL, ACTORS), jnp.float32),
        behaviour_logits=field((UNROLL, ACTORS, ACTIONS), jnp.float32),
    )
    fn = jax.jit(functools.partial(step, tx=tx, rows=rows), donate_argnums=(0, 1), out_shardings=whole)
    return fn, (place(params), place(state), batch)
