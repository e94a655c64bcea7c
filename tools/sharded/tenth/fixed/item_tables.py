# mypy: ignore-errors
"""Fixed."""
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "cpu"


@dataclass(frozen=True)
class TowerConfig:
    num_users: int = 262_144
    num_items: int = 100_008
    dim: int = 128
    hidden: int = 512
    batch: int = 4096
    table_axes: tuple = ("shard", None)
    dense_axes: tuple = (None, None)


@dataclass
class Placement:
    mesh: Mesh
    log: list = field(default_factory=list)

    def __call__(self, shape, axes):
        kept = []
        for size, axis in zip(shape, axes):
            if axis is not None and size % self.mesh.shape[axis] != 0:
                self.log.append((shape, axis))
                axis = None
            kept.append(axis)
        return NamedSharding(self.mesh, PartitionSpec(*kept))


def init(cfg, key):
    ks = jax.random.split(key, 4)
    return {
        "users": jax.random.normal(ks[0], (cfg.num_users, cfg.dim)) * 0.02,
        "items": jax.random.normal(ks[1], (cfg.num_items, cfg.dim)) * 0.02,
        "user_dense": jax.random.normal(ks[2], (cfg.dim, cfg.hidden)) * 0.05,
        "item_dense": jax.random.normal(ks[3], (cfg.dim, cfg.hidden)) * 0.05,
    }


def loss_fn(params, users, items):
    u = jnp.tanh(params["users"][users] @ params["user_dense"])
    v = jnp.tanh(params["items"][items] @ params["item_dense"])
    logits = jnp.einsum("bh,bh->b", u, v)
    return optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits)).mean()


def make_fixed(devices):
    cfg = TowerConfig()
    mesh = Mesh(np.asarray(devices), ("shard",))
    place = Placement(mesh)
    tx = optax.adam(1e-3)

    def step(params, opt_state, users, items):
        loss, grads = jax.value_and_grad(loss_fn)(params, users, items)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def abstract(leaf):
        if leaf.ndim < 2:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place((), ()))
        axes = cfg.table_axes if leaf.shape[0] > 10_000 else cfg.dense_axes
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place(leaf.shape, axes))

    params = jax.eval_shape(lambda k: init(cfg, k), jax.random.key(0))
    state = jax.tree.map(abstract, (params, jax.eval_shape(tx.init, params)))
    shardings = jax.tree.map(lambda a: a.sharding, state)
    ids = jax.ShapeDtypeStruct((cfg.batch,), jnp.int32, sharding=place((cfg.batch,), ("shard",)))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*shardings, place((), ())))
    return fn, (*state, ids, ids)
