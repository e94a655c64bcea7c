# mypy: ignore-errors
"""Clean. Click ranking with row-split embedding tables; only the two tiny tables are whole.
"""
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
AXIS = "shard"


@dataclass(frozen=True)
class TableConfig:
    name: str
    rows: int
    width: int = 64
    placement: str = "rows"

    def spec(self):
        return {"rows": P(AXIS, None), "whole": P()}[self.placement]


@dataclass(frozen=True)
class RankerConfig:
    tables: tuple = (
        TableConfig("user", rows=524_288),
        TableConfig("item", rows=262_144),
        TableConfig("query_x_item", rows=196_608),
        TableConfig("weekday", rows=8, placement="whole"),
        TableConfig("country", rows=256, placement="whole"),
    )
    dense_features: int = 32
    hidden: tuple = (512, 256)
    batch: int = 16_384
    learning_rate: float = 0.02


class Ranker(eqx.Module):
    tables: dict
    layers: list
    norm: eqx.nn.LayerNorm

    def __init__(self, cfg, key):
        keys = jax.random.split(key, len(cfg.tables) + len(cfg.hidden) + 1)
        self.tables = {
            t.name: jax.random.normal(k, (t.rows, t.width)) / np.sqrt(t.width)
            for t, k in zip(cfg.tables, keys)
        }
        width = sum(t.width for t in cfg.tables) + cfg.dense_features
        self.norm = eqx.nn.LayerNorm(width)
        sizes = (width, *cfg.hidden, 1)
        self.layers = [
            eqx.nn.Linear(a, b, key=k)
            for a, b, k in zip(sizes, sizes[1:], keys[len(cfg.tables):])
        ]

    def __call__(self, embedded, dense):
        x = self.norm(jnp.concatenate([*embedded, dense]))
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)[0]


def lookup(table, ids):
    """Runs on each shard: every device looks up the rows it owns for the whole batch."""
    rows = table.shape[0]
    everyone = jax.lax.all_gather(ids, AXIS, tiled=True)
    local = everyone - jax.lax.axis_index(AXIS) * rows
    mine = (local >= 0) & (local < rows)
    found = jnp.where(mine[:, None], table[jnp.where(mine, local, 0)], 0.0)
    return jax.lax.psum_scatter(found, AXIS, scatter_dimension=0, tiled=True)


def loss_fn(model, batch, *, cfg, mesh):
    pull = jax.shard_map(
        lookup, mesh=mesh, in_specs=(P(AXIS, None), P(AXIS)), out_specs=P(AXIS, None)
    )
    embedded = []
    for t in cfg.tables:
        ids = batch["ids"][t.name]
        table = model.tables[t.name]
        big = t.rows >= 4096
        embedded.append(pull(table, ids) if big else table[ids])
    logits = jax.vmap(model)(embedded, batch["dense"])
    return optax.sigmoid_binary_cross_entropy(logits, batch["click"]).mean()


def placements(tree, cfg, mesh):
    specs = {t.name: t.spec() for t in cfg.tables}

    def place(path, leaf):
        keys = [getattr(k, "key", None) for k in path]
        spec = next((specs[k] for k in keys if k in specs), P())
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(place, tree)


def abstract(tree, shardings):
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings
    )


def make_fixed(devices):
    cfg = RankerConfig()
    mesh = Mesh(np.array(devices), (AXIS,))
    tx = optax.adagrad(cfg.learning_rate)

    params = eqx.filter(
        eqx.filter_eval_shape(Ranker, cfg, jax.random.key(0)),
        lambda x: isinstance(x, jax.ShapeDtypeStruct),
    )
    opt_state = jax.eval_shape(tx.init, params)
    shardings = placements(params, cfg, mesh), placements(opt_state, cfg, mesh)

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=(*shardings, NamedSharding(mesh, P())))
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch, cfg=cfg, mesh=mesh)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    by_example = NamedSharding(mesh, P(AXIS))
    example = partial(jax.ShapeDtypeStruct, sharding=by_example)
    batch = {
        "ids": {t.name: example((cfg.batch,), jnp.int32) for t in cfg.tables},
        "dense": example((cfg.batch, cfg.dense_features), jnp.float32),
        "click": example((cfg.batch,), jnp.float32),
    }
    return train_step, (abstract(params, shardings[0]), abstract(opt_state, shardings[1]), batch)
