# mypy: ignore-errors
"""Fixed."""
from typing import Any
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

ENVS, CAPACITY, ROLLOUT, PER_ENV = 64, 1024, 32, 8
FRAME = (84, 84)
ACTIONS = 18
GAMMA = 0.99


@flax.struct.dataclass
class Replay:
    """Everything is environment, time, ..."""
    frames: jax.Array
    actions: jax.Array
    rewards: jax.Array
    dones: jax.Array

    def insert(self, other, cursor):
        put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, cursor, axis=1)
        return jax.tree.map(put, self, other)

    def sample(self, rng, valid):
        at = jax.random.randint(rng, (ENVS, PER_ENV), 3, valid - 1)
        window = at[..., None] + jnp.arange(-3, 2)
        frames = jax.vmap(lambda f, i: f[i])(self.frames, window)  # env, sample, 5, h, w
        pick = lambda x: jnp.take_along_axis(x, at, axis=1)
        return frames, pick(self.actions), pick(self.rewards), pick(self.dones)


@flax.struct.dataclass
class Learner:
    params: Any
    target: Any
    opt: Any
    updates: jax.Array


class QNetwork(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x.astype(jnp.float32) / 255
        for width, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = nn.relu(nn.Conv(width, (size, size), stride, padding="VALID")(x))
        x = nn.relu(nn.Dense(512)(x.reshape(*x.shape[:-3], -1)))
        return nn.Dense(1)(x) + nn.Dense(ACTIONS)(x)


def update(net, tx, learner, sample):
    frames, actions, rewards, dones = sample
    stack = lambda f: jnp.moveaxis(f, 2, -1)
    now, after = stack(frames[:, :, :4]), stack(frames[:, :, 1:])
    best = net.apply(learner.params, after).argmax(-1)
    later = jnp.take_along_axis(net.apply(learner.target, after), best[..., None], -1)[..., 0]
    goal = rewards + GAMMA * (1 - dones) * later

    def loss_fn(params):
        q = jnp.take_along_axis(net.apply(params, now), actions[..., None], -1)[..., 0]
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(loss_fn)(learner.params)
    updates, opt = tx.update(grads, learner.opt)
    params = optax.apply_updates(learner.params, updates)
    target = optax.periodic_update(params, learner.target, learner.updates, 500)
    return Learner(params, target, opt, learner.updates + 1), loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("actors",))
    net, tx = QNetwork(), optax.rmsprop(2.5e-4, decay=0.95)
    everywhere = NamedSharding(mesh, P())
    by_env = NamedSharding(mesh, P("actors"))
    by_time = NamedSharding(mesh, P(None, "actors"))

    def step(replay, learner, rollout, cursor, rng):
        replay = replay.insert(rollout, cursor)
        sample = replay.sample(rng, jnp.maximum(cursor, CAPACITY // 2))
        learner, loss = update(net, tx, learner, sample)
        return replay, learner, {"loss": loss, "reward": rollout.rewards.mean()}

    def records(length):
        s = lambda dtype, *tail: jax.ShapeDtypeStruct((ENVS, length, *tail), dtype)
        return Replay(s(jnp.uint8, *FRAME), s(jnp.int32), s(jnp.float32), s(jnp.float32))

    def init(rng):
        params = net.init(rng, jnp.zeros((1, *FRAME, 4), jnp.uint8))
        return Learner(params, params, tx.init(params), jnp.zeros((), jnp.int32))

    fn = jax.jit(
        step,
        in_shardings=(by_env, everywhere, by_env, everywhere, everywhere),
        out_shardings=(by_env, everywhere, everywhere),
        donate_argnums=(0, 1),
    )
    rng = jax.eval_shape(lambda: jax.random.key(0))
    return fn, (records(CAPACITY), jax.eval_shape(init, rng), records(ROLLOUT), jax.ShapeDtypeStruct((), jnp.int32), rng)
