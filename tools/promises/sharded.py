# mypy: ignore-errors
"""Training steps over four devices: fully sharded, tensor parallel, and by shard_map."""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGETS = ("tpu-v5e:2x2",)


def layer(x, w):
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def _mesh(devices, *names):
    grid = np.array(devices[:4]).reshape((4,) if len(names) == 1 else (2, 2))
    return jax.sharding.Mesh(grid, names)


def make_fsdp(devices, batch=65536, d=2048, layers=8):
    mesh = _mesh(devices, "data")
    rows = NamedSharding(mesh, P("data"))
    stacked = NamedSharding(mesh, P(None, "data"))

    def train_step(params, x):
        def loss(params):
            return (jax.lax.scan(lambda h, w: (layer(h, w), None), x, params)[0] ** 2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    up = S((layers, d, 4 * d), "float32", sharding=stacked)
    down = S((layers, 4 * d, d), "float32", sharding=stacked)
    x = S((batch, d), "float32", sharding=rows)
    return jax.jit(train_step, out_shardings=stacked), ({"up": up, "down": down}, x)


def make_tensor(devices, batch=16384, d=2048, layers=6):
    mesh = _mesh(devices, "data", "model")

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    @jax.jit
    def train_step(params, x):
        def loss(params):
            h = x
            for w in params:
                h = layer(h, w)
            return (h**2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    w = {
        "up": S((d, 4 * d), "float32", sharding=spec(None, "model")),
        "down": S((4 * d, d), "float32", sharding=spec("model", None)),
    }
    return train_step, ([w] * layers, S((batch, d), "float32", sharding=spec("data", None)))


def make_shard_map(devices, batch=65536, d=1024, layers=8):
    mesh = _mesh(devices, "data")

    def local(params, x):
        def loss(params):
            h = x
            for w in params:
                h = layer(h, w)
            return (h**2).mean()

        grads = jax.lax.pmean(jax.grad(loss)(params), "data")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    train_step = jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)
    )
    whole = NamedSharding(mesh, P())
    w = {
        "up": S((d, 4 * d), "float32", sharding=whole),
        "down": S((4 * d, d), "float32", sharding=whole),
    }
    return train_step, (
        [w] * layers,
        S((batch, d), "float32", sharding=NamedSharding(mesh, P("data"))),
    )
