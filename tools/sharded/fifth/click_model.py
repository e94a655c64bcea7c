# mypy: ignore-errors
"""Clean. A click model with sparse embeddings: rows of the tables (and of their Adagrad accumulators) over all
chips, looked up in a shard_map; the small dense part is replicated, the batch is split."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Feature:
    name: str
    rows: int
    width: int = 128


FEATURES = [Feature("user", 200_704), Feature("item", 131_072), Feature("shop", 16_384), Feature("query", 65_536)]
NUMERIC, HIDDEN, BATCH = 32, 512, 16384


def lookup_local(table, ids):
    """table: the rows of this chip; ids: the samples of this chip. Returns embeddings of these samples."""
    ids = lax.all_gather(ids, "chips", tiled=True)
    local = ids - lax.axis_index("chips") * table.shape[0]
    mine = (local >= 0) & (local < table.shape[0])
    found = jnp.where(mine[:, None], table[jnp.where(mine, local, 0)], 0)
    return lax.psum_scatter(found, "chips", scatter_dimension=0, tiled=True)


def init_tables():
    return {f.name: jnp.zeros((f.rows, f.width), jnp.float32) for f in FEATURES}


def init_dense(key):
    a, b, c = jax.random.split(key, 3)
    d = sum(f.width for f in FEATURES) + NUMERIC
    pairs = len(FEATURES) * (len(FEATURES) - 1) // 2
    return {
        "in": jax.random.normal(a, (d, HIDDEN)) * d**-0.5,
        "mid": jax.random.normal(b, (HIDDEN, HIDDEN)) * HIDDEN**-0.5,
        "out": jax.random.normal(c, (HIDDEN + pairs,)) * HIDDEN**-0.5,
    }


def score(dense, vectors, numeric):
    stacked = jnp.stack(vectors, 1)
    cross = jnp.einsum("bfe,bge->bfg", stacked, stacked)
    i, j = np.triu_indices(len(FEATURES), 1)
    x = jnp.concatenate([*vectors, numeric], -1)
    x = jax.nn.relu(x @ dense["in"])
    x = jax.nn.relu(x @ dense["mid"])
    return jnp.concatenate([x, cross[:, i, j]], -1) @ dense["out"]


class ClickTrainer:
    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("chips",))
        self.rows = NamedSharding(self.mesh, P("chips"))
        self.everywhere = NamedSharding(self.mesh, P())
        self.dense_opt = optax.adam(1e-3)
        self.table_opt = optax.adagrad(0.05)
        self.lookup = jax.shard_map(
            lookup_local, mesh=self.mesh, in_specs=(P("chips", None), P("chips")), out_specs=P("chips", None)
        )

    def loss(self, weights, batch):
        tables, dense = weights
        vectors = [self.lookup(tables[f.name], batch["ids"][f.name]) for f in FEATURES]
        logit = score(dense, vectors, batch["numeric"])
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logit, batch["clicked"]))

    def step(self, state, batch):
        tables, dense, table_state, dense_state = state
        loss, (table_grads, dense_grads) = jax.value_and_grad(self.loss)((tables, dense), batch)
        table_updates, table_state = self.table_opt.update(table_grads, table_state)
        dense_updates, dense_state = self.dense_opt.update(dense_grads, dense_state)
        tables = optax.apply_updates(tables, table_updates)
        dense = optax.apply_updates(dense, dense_updates)
        return (tables, dense, table_state, dense_state), loss

    def abstract_state(self):
        tables = jax.eval_shape(init_tables)
        dense = jax.eval_shape(init_dense, jax.random.key(0))
        table_state, dense_state = jax.eval_shape(self.table_opt.init, tables), jax.eval_shape(self.dense_opt.init, dense)
        shapes = (tables, dense, table_state, dense_state)
        return shapes, tuple(
            jax.tree.map(lambda x, s=s: s if x.ndim else self.everywhere, part)
            for part, s in zip(shapes, (self.rows, self.everywhere, self.rows, self.everywhere))
        )


def make_clean(devices):
    trainer = ClickTrainer(devices)
    state, layout = trainer.abstract_state()
    per_sample = partial(jax.ShapeDtypeStruct, sharding=trainer.rows)
    batch = {
        "ids": {f.name: per_sample((BATCH,), jnp.int32) for f in FEATURES},
        "numeric": per_sample((BATCH, NUMERIC), jnp.float32),
        "clicked": per_sample((BATCH,), jnp.float32),
    }
    fn = jax.jit(
        trainer.step,
        in_shardings=(layout, jax.tree.map(lambda x: x.sharding, batch)),
        out_shardings=(layout, trainer.everywhere),
        donate_argnums=0,
    )
    return fn, (state, batch)
