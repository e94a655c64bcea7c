# mypy: ignore-errors
"""Fixed."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
USERS, ITEMS, TAGS, DIM, BATCH, HISTORY = 262144, 131072, 4096, 128, 2048, 8


class Tower(eqx.Module):
    table: jax.Array
    mlp: eqx.nn.MLP

    def __init__(self, rows, key):
        a, b = jax.random.split(key)
        self.table = jax.random.normal(a, (rows, DIM)) * 0.01
        self.mlp = eqx.nn.MLP(2 * DIM, DIM, 256, 2, key=b)


class TwoTower(eqx.Module):
    user: Tower
    item: Tower
    tags: jax.Array

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.user, self.item = Tower(USERS, a), Tower(ITEMS, b)
        self.tags = jax.random.normal(c, (TAGS, DIM))

    def __call__(self, batch):
        seen = jnp.take(self.item.table, batch["history"], axis=0).mean(1)
        u = jnp.concatenate([jnp.take(self.user.table, batch["user"], axis=0), seen], -1)
        i = jnp.concatenate([jnp.take(self.item.table, batch["item"], axis=0), jnp.take(self.tags, batch["tag"], axis=0)], -1)
        return jax.vmap(self.user.mlp)(u), jax.vmap(self.item.mlp)(i)


def in_batch_softmax(model, batch):
    u, i = model(batch)
    scores = u @ i.T / 0.07 - batch["log_frequency"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(BATCH)).mean()


def row_or_whole(leaf):
    return P("rows") if leaf.ndim == 2 and leaf.shape[0] >= 65536 else P()


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("rows",))
    opt = optax.adagrad(0.05)

    def attach(tree, spec):
        def one(x):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec(x)))
        return jax.tree.map(one, tree)

    model = eqx.filter_eval_shape(TwoTower, jax.random.key(0))
    shapes, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    params = attach(shapes, row_or_whole)
    state = attach(jax.eval_shape(opt.init, shapes), row_or_whole)
    average = attach(shapes, row_or_whole)

    def step(params, state, average, batch):
        value, grads = jax.value_and_grad(lambda p: in_batch_softmax(eqx.combine(p, static), batch))(params)
        updates, state = opt.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: 0.999 * a + 0.001 * p, average, params)
        return params, state, average, value

    out = jax.tree.map(lambda x: x.sharding, (params, state, average))
    ints = {"user": (BATCH,), "item": (BATCH,), "tag": (BATCH,), "history": (BATCH, HISTORY)}
    batch = {k: jax.ShapeDtypeStruct(s, jnp.int32) for k, s in ints.items()}
    batch["log_frequency"] = jax.ShapeDtypeStruct((BATCH,), jnp.float32)
    batch = attach(batch, lambda x: P("rows"))
    return jax.jit(step, out_shardings=(*out, NamedSharding(mesh, P())), donate_argnums=(0, 1, 2)), (params, state, average, batch)
