# mypy: ignore-errors
"""Clean. Q-learning from a replay memory that stays split by lane and is updated in place."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

SLOTS, LANES, SIDE, ACTIONS = 1024, 64, 84, 18
STACK, DRAWS, DISCOUNT, FOLLOW = 4, 4, 0.99, 0.005


class Replay(NamedTuple):
    """The last `SLOTS` frames of `LANES` games played side by side; time comes first."""

    frame: jax.Array
    action: jax.Array
    reward: jax.Array
    over: jax.Array


class Learner(NamedTuple):
    online: dict
    target: dict
    opt: optax.OptState


def by_leading(mesh, tree):
    return jax.tree.map(lambda _: NamedSharding(mesh, P("lane")), tree)


def by_lane(mesh, tree):
    return jax.tree.map(lambda _: NamedSharding(mesh, P(None, "lane")), tree)


def init_network(key):
    shapes = {"conv1": (8, 8, STACK, 32), "conv2": (4, 4, 32, 64), "conv3": (3, 3, 64, 64)}
    shapes |= {"dense": (7 * 7 * 64, 512), "value": (512, ACTIONS)}
    he, keys = jax.nn.initializers.he_normal(), jax.random.split(key, len(shapes))
    return {n: he(k, shape) for k, (n, shape) in zip(keys, shapes.items(), strict=True)}


def q_values(net, frames):
    x = frames.astype(jnp.float32) / 255.0
    for name, stride in (("conv1", 4), ("conv2", 2), ("conv3", 1)):
        x = lax.conv_general_dilated(
            x, net[name], (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ net["dense"])
    return x @ net["value"]


def draw(replay, key, slot):
    """`DRAWS` transitions of every lane of this device, from the lane's own memory."""
    lanes = replay.action.shape[1]
    key = jax.random.fold_in(key, lax.axis_index("lane"))
    ago = jax.random.randint(key, (DRAWS, lanes), 1, SLOTS - STACK)
    at = (slot - ago) % SLOTS

    def of_lane(lane, at):
        window = (at[:, None] + jnp.arange(1 - STACK, 2)) % SLOTS
        frames = jnp.moveaxis(lane.frame[window], 1, -1)
        return frames, lane.action[at], lane.reward[at], lane.over[at]

    drawn = jax.vmap(of_lane, in_axes=1)(replay, at)
    return jax.tree.map(lambda a: a.reshape(lanes * DRAWS, *a.shape[2:]), drawn)


def td_loss(online, target, batch):
    frames, action, reward, over = batch
    q = q_values(online, frames[..., :STACK])
    chosen = jnp.take_along_axis(q, action[:, None].astype(jnp.int32), axis=1)[:, 0]
    after = frames[..., 1:]
    best = jnp.argmax(q_values(online, after), axis=1)
    value = jnp.take_along_axis(q_values(target, after), best[:, None], axis=1)[:, 0]
    goal = reward + DISCOUNT * (1.0 - over) * lax.stop_gradient(value)
    return jnp.mean(optax.huber_loss(chosen, goal))


def learn(tx, mesh, learner, replay, fresh, slot, key):
    insert = partial(lax.dynamic_update_index_in_dim, index=slot, axis=0)
    replay = jax.tree.map(insert, replay, fresh)
    specs = (P(None, "lane"), P(), P())
    batch = jax.shard_map(draw, mesh=mesh, in_specs=specs, out_specs=P("lane"))(replay, key, slot)
    loss, grads = jax.value_and_grad(td_loss)(learner.online, learner.target, batch)
    updates, opt = tx.update(grads, learner.opt)
    online = optax.apply_updates(learner.online, updates)
    target = optax.incremental_update(online, learner.target, FOLLOW)
    return Learner(online, target, opt), replay, loss


def make_fixed(devices):
    mesh, tx = Mesh(np.array(devices), ("lane",)), optax.adam(6.25e-5)
    everywhere = NamedSharding(mesh, P())

    def struct(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    net = jax.eval_shape(init_network, jax.random.key(0))
    learner = Learner(net, net, jax.eval_shape(tx.init, net))
    learner = jax.tree.map(lambda leaf: struct(leaf, everywhere), learner)
    fresh = Replay(
        frame=jax.ShapeDtypeStruct((LANES, SIDE, SIDE), jnp.uint8),
        action=jax.ShapeDtypeStruct((LANES,), jnp.int8),
        **dict.fromkeys(("reward", "over"), jax.ShapeDtypeStruct((LANES,), jnp.float32)),
    )
    replay = jax.tree.map(lambda a: jax.ShapeDtypeStruct((SLOTS, *a.shape), a.dtype), fresh)
    replay = jax.tree.map(struct, replay, by_lane(mesh, replay))
    fresh = jax.tree.map(struct, fresh, by_leading(mesh, fresh))
    slot = jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere)
    key = struct(jax.eval_shape(jax.random.key, 0), everywhere)
    jitted = jax.jit(
        partial(learn, tx, mesh),
        donate_argnums=(0, 1),
        out_shardings=(everywhere, by_lane(mesh, replay), everywhere),
    )
    return jitted, (learner, replay, fresh, slot, key)
