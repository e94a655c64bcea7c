# mypy: ignore-errors
"""Clean. Training step of an emulator of the ocean on a ring of cells: each layer mixes a cell with its neighbours and
then its channels; the layers run in a scan with remat, the weights are split over all chips and gathered by layer.
"""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Config:
    layers: int = 20
    channels: int = 256
    hidden: int = 1024
    variables: int = 24
    cells: int = 16384
    batch: int = 8
    reach: int = 2


class Layout:
    def __init__(self, mesh):
        def on(*names):
            return NamedSharding(mesh, P(*names))

        self.fields = on("member", None, None)
        self.state = on("member", "cell", None)
        self.weights = on(None, ("member", "cell"), None)
        self.small = on()


def init(config, key):
    keys = jax.random.split(key, 4)
    c, h, n = config.channels, config.hidden, config.layers

    def normal(key, *shape):
        return jax.random.normal(key, shape) * shape[-2] ** -0.5

    return {
        "layers": {
            "near": normal(keys[0], n, (2 * config.reach + 1) * c, c),
            "up": normal(keys[1], n, c, h),
            "down": normal(keys[2], n, h, c),
        },
        "encode": normal(keys[3], config.variables, c),
        "decode": jnp.zeros((c, config.variables)),
    }


def norm(x):
    return (x - x.mean(axis=-1, keepdims=True)) * jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def neighbourhood(x, reach):
    return jnp.concatenate([jnp.roll(x, shift, axis=1) for shift in range(-reach, reach + 1)], axis=-1)


def emulate(params, fields, config, layout):
    @jax.checkpoint
    def block(x, weights):
        weights = jax.lax.with_sharding_constraint(weights, layout.small)
        x = x + neighbourhood(norm(x), config.reach) @ weights["near"]
        x = x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]
        return jax.lax.with_sharding_constraint(x, layout.state)

    def layer(x, weights):
        return block(x, weights), None

    x = jax.lax.with_sharding_constraint(fields @ params["encode"], layout.state)
    x, _ = jax.lax.scan(layer, x, params["layers"])
    return fields + norm(x) @ params["decode"]


def loss_fn(params, now, later, area, config, layout):
    error = emulate(params, now, config, layout) - later
    return jnp.mean(error**2 * area[:, None])


def make_fixed(devices):
    config = Config()
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("member", "cell"))
    layout = Layout(mesh)
    optimizer = optax.sgd(1e-3, momentum=0.9, nesterov=True)
    params = jax.eval_shape(partial(init, config), jax.random.key(0))
    state = jax.eval_shape(optimizer.init, params)

    def step(params, state, now, later, area):
        loss, grads = jax.value_and_grad(loss_fn)(params, now, later, area, config, layout)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def shard(tree):
        return jax.tree.map(lambda x: layout.weights if len(x.shape) == 3 else layout.small, tree)

    def place(tree, shardings):
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

    fields = jax.ShapeDtypeStruct((config.batch, config.cells, config.variables), jnp.float32, sharding=layout.fields)
    area = jax.ShapeDtypeStruct((config.cells,), jnp.float32, sharding=layout.small)
    results = (shard(params), shard(state), layout.small)
    arguments = (place(params, shard(params)), place(state, shard(state)), fields, fields, area)
    return jax.jit(step, out_shardings=results, donate_argnums=(0, 1)), arguments
