# mypy: ignore-errors
"""Fixed."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Feature:
    name: str
    rows: int
    bag: int  # ids per example


FEATURES = (
    Feature("user", 1 << 20, 1),
    Feature("item", 1 << 18, 1),
    Feature("query", 1 << 17, 8),
    Feature("country", 256, 1),
    Feature("daypart", 64, 1),
)
DIM = 32
N_DENSE = 13
BATCH = 8192
TOWER = (256, 128, 1)
# Tables below this size are cheap enough to copy to every device.
DIVIDE_FROM_ROWS = 1 << 14


def table_spec(feature):
    if feature.rows >= DIVIDE_FROM_ROWS:
        return P(("data", "model"), None)
    return P(None, None)


def shapes():
    tables = {f.name: jax.ShapeDtypeStruct((f.rows, DIM), jnp.float32) for f in FEATURES}
    n_in = N_DENSE + DIM * len(FEATURES)
    mlp = []
    for width in TOWER:
        mlp.append({"w": jax.ShapeDtypeStruct((n_in, width), jnp.float32),
                    "b": jax.ShapeDtypeStruct((width,), jnp.float32)})
        n_in = width
    batch = {f.name: jax.ShapeDtypeStruct((BATCH, f.bag), jnp.int32) for f in FEATURES}
    batch["dense"] = jax.ShapeDtypeStruct((BATCH, N_DENSE), jnp.float32)
    batch["click"] = jax.ShapeDtypeStruct((BATCH,), jnp.float32)
    return {"tables": tables, "mlp": mlp}, batch


def predict(params, batch):
    pooled = [jnp.take(params["tables"][f.name], batch[f.name], axis=0).mean(axis=1) for f in FEATURES]
    x = jnp.concatenate([batch["dense"], *pooled], axis=-1)
    for i, layer in enumerate(params["mlp"]):
        x = x @ layer["w"] + layer["b"]
        if i + 1 < len(params["mlp"]):
            x = jax.nn.relu(x)
    return x[:, 0]


def loss_fn(params, batch):
    logit = predict(params, batch)
    return jnp.mean(jnp.logaddexp(0.0, logit) - batch["click"] * logit)


def train_step(params, accum, batch, *, lr):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    accum = jax.tree.map(lambda a, g: a + g * g, accum, grads)
    params = jax.tree.map(lambda p, a, g: p - lr * g * jax.lax.rsqrt(a + 1e-8), params, accum, grads)
    return params, accum, loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))
    named = functools.partial(NamedSharding, mesh)
    params, batch = shapes()
    param_shardings = {
        "tables": {f.name: named(table_spec(f)) for f in FEATURES},
        "mlp": jax.tree.map(lambda _: named(P()), params["mlp"]),
    }
    batch_shardings = jax.tree.map(lambda _: named(P(("data", "model"))), batch)
    step = jax.jit(
        functools.partial(train_step, lr=0.01),
        in_shardings=(param_shardings, param_shardings, batch_shardings),
        out_shardings=(param_shardings, param_shardings, named(P())),
        donate_argnums=(0, 1),
    )
    return step, (params, params, batch)
