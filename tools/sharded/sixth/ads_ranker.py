# mypy: ignore-errors
"""Fault: replicated. The placement table of the ads ranker leaves the creative table whole on every device, while
all other big tables are split by rows over the eight devices; table, gradient and update cost eight times as much."""
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class RankerConfig:
    tables: dict = field(default_factory=lambda: {
        "user": 400_000,
        "advertiser": 160_000,
        "creative": 320_000,
        "publisher": 80_000,
        "country": 256,
        "device_type": 64,
    })
    dim: int = 64
    dense_features: int = 32
    hidden: tuple = (512, 256, 128)
    batch: int = 16_384
    lr: float = 0.02


ROWWISE = P("shard", None)
WHOLE = P()


def placement_v1():
    return {
        "user": ROWWISE,
        "advertiser": ROWWISE,
        "creative": WHOLE,  # FAULT
        "publisher": ROWWISE,
        "country": WHOLE,
        "device_type": WHOLE,
    }


def placement_v2():
    return {**placement_v1(), "creative": ROWWISE}


def param_shapes(cfg):
    widths = (cfg.dim + cfg.dim * (len(cfg.tables) - 1) + cfg.dim, *cfg.hidden, 1)
    tables = {k: (rows, cfg.dim) for k, rows in cfg.tables.items()}
    bottom = {"w": (cfg.dense_features, cfg.dim), "b": (cfg.dim,)}
    top = [{"w": (i, o), "b": (o,)} for i, o in zip(widths[:-1], widths[1:])]
    return {"tables": tables, "bottom": bottom, "top": top}


def score(params, cfg, batch):
    feats = [jnp.take(params["tables"][name], batch["ids"][name], axis=0) for name in cfg.tables]
    dense = jax.nn.relu(batch["dense"] @ params["bottom"]["w"] + params["bottom"]["b"])
    x = jnp.concatenate([*feats, dense], axis=-1)
    for i, layer in enumerate(params["top"]):
        x = x @ layer["w"] + layer["b"]
        if i + 1 < len(params["top"]):
            x = jax.nn.relu(x)
    return x[:, 0]


def loss_fn(params, cfg, batch):
    logits = score(params, cfg, batch)
    label = batch["label"]
    return jnp.mean(jnp.maximum(logits, 0) - logits * label + jnp.log1p(jnp.exp(-jnp.abs(logits))))


def train_step(params, batch, *, cfg):
    loss, grads = jax.value_and_grad(loss_fn)(params, cfg, batch)
    params = jax.tree.map(lambda p, g: p - cfg.lr * g, params, grads)
    return params, loss


def is_shape(x):
    return isinstance(x, tuple) and all(isinstance(v, int) for v in x)


def build(devices, placement):
    cfg = RankerConfig()
    mesh = Mesh(np.array(devices), ("shard",))
    shapes = param_shapes(cfg)
    specs = jax.tree.map(lambda _: P(), shapes, is_leaf=is_shape)
    specs["tables"] = placement()
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    params = jax.tree.map(lambda s, sh: jax.ShapeDtypeStruct(s, jnp.float32, sharding=sh), shapes, shardings,
                          is_leaf=is_shape)
    rows = NamedSharding(mesh, P("shard"))
    batch = {
        "ids": {k: jax.ShapeDtypeStruct((cfg.batch,), jnp.int32, sharding=rows) for k in cfg.tables},
        "dense": jax.ShapeDtypeStruct((cfg.batch, cfg.dense_features), jnp.float32, sharding=rows),
        "label": jax.ShapeDtypeStruct((cfg.batch,), jnp.float32, sharding=rows),
    }
    step = jax.jit(partial(train_step, cfg=cfg), donate_argnums=0,
                   out_shardings=(shardings, NamedSharding(mesh, P())))
    return step, (params, batch)


def make_faulty(devices):
    return build(devices, placement_v1)


def make_fixed(devices):
    return build(devices, placement_v2)
