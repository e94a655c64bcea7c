# mypy: ignore-errors
"""Fault: optimizer. The exponential moving average of the parameters is placed with the scalars, whole on every device, while parameters and moments are split over "fsdp"; it costs a full copy of the model per device."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SIGNAL, WIDTH, DEPTH, BATCH = 256, 1024, 8, 256
DECAY = 0.999


class ScoreNet(eqx.Module):
    stem: jax.Array
    time: jax.Array
    layers: jax.Array
    head: jax.Array

    def __init__(self, key):
        keys = iter(jax.random.split(key, 4))

        def weight(*shape):
            return jax.random.normal(next(keys), shape) * shape[-2] ** -0.5

        self.stem = weight(SIGNAL, WIDTH)
        self.time = weight(64, WIDTH)
        self.layers = weight(DEPTH, WIDTH, WIDTH)
        self.head = weight(WIDTH, SIGNAL)

    def __call__(self, x, t):
        angles = t[:, None] * 2.0 ** jnp.arange(32)
        features = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        h = x @ self.stem + features @ self.time

        @jax.checkpoint
        def layer(h, w):
            return h + jax.nn.silu(h) @ w, None

        h, _ = jax.lax.scan(layer, h, self.layers)
        return h @ self.head


class State(eqx.Module):
    params: ScoreNet
    ema: ScoreNet
    opt: optax.OptState
    step: jax.Array


TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-4))


def init_state(key):
    net = ScoreNet(key)
    return State(net, net, TX.init(net), jnp.zeros((), jnp.int32))


def train_step(state, clean, noise, t):
    def loss_fn(net):
        sigma = t[:, None]
        return jnp.mean((net(clean + sigma * noise, t) + noise) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt = TX.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    ema = jax.tree.map(lambda e, p: DECAY * e + (1 - DECAY) * p, state.ema, params)
    return State(params, ema, opt, state.step + 1), loss


def state_shardings(mesh, state):
    whole = NamedSharding(mesh, P())
    by_rank = {
        2: NamedSharding(mesh, P("fsdp")),
        3: NamedSharding(mesh, P(None, "fsdp")),
    }

    def split(tree):
        return jax.tree.map(lambda a: by_rank.get(a.ndim, whole), tree)

    def keep(tree):
        return jax.tree.map(lambda _: whole, tree)

    return State(
        params=split(state.params),
        ema=keep(state.ema),  # FAULT
        opt=split(state.opt),
        step=keep(state.step),
    )


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    abstract = jax.eval_shape(init_state, jax.random.key(0))
    shardings = state_shardings(mesh, abstract)
    state = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s),
        abstract,
        shardings,
    )
    split = NamedSharding(mesh, P("fsdp"))
    signal = jax.ShapeDtypeStruct((BATCH, SIGNAL), jnp.float32, sharding=split)
    t = jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=split)
    step = jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, None))
    return step, (state, signal, signal, t)
