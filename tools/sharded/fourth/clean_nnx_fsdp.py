# mypy: ignore-errors
"""Clean. FSDP for a two-tower retrieval model in nnx: every matrix and its Adam moments split over all devices,
layers gathered one at a time under remat, the in-batch softmax split by rows."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

USERS, ITEMS, DIM, HIDDEN, DEPTH, BATCH = 524288, 262144, 256, 2048, 3, 4096


class Residual(nnx.Module):
    def __init__(self, dim, hidden, *, rngs):
        self.norm = nnx.LayerNorm(dim, rngs=rngs)
        self.up = nnx.Linear(dim, hidden, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(hidden, dim, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Tower(nnx.Module):
    def __init__(self, *, rngs):
        self.blocks = nnx.List([Residual(DIM, HIDDEN, rngs=rngs) for _ in range(DEPTH)])
        self.norm = nnx.LayerNorm(DIM, rngs=rngs)

    def __call__(self, x, rows):
        for block in self.blocks:
            graphdef, state = nnx.split(block)
            x = jax.checkpoint(lambda s, x, g=graphdef: nnx.merge(g, s)(x))(state, x)
            x = jax.lax.with_sharding_constraint(x, rows)
        x = self.norm(x)
        return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)


class TwoTower(nnx.Module):
    def __init__(self, *, rngs):
        self.user_table = nnx.Param(jax.random.normal(rngs.params(), (USERS, DIM)) * 0.02)
        self.item_table = nnx.Param(jax.random.normal(rngs.params(), (ITEMS, DIM)) * 0.02)
        self.user_tower = Tower(rngs=rngs)
        self.item_tower = Tower(rngs=rngs)
        self.temperature = nnx.Param(jnp.array(0.07))

    def __call__(self, batch, rows):
        user = jnp.take(self.user_table[...], batch["user"], axis=0)
        item = jnp.take(self.item_table[...], batch["item"], axis=0)
        user = self.user_tower(jax.lax.with_sharding_constraint(user, rows), rows)
        item = self.item_tower(jax.lax.with_sharding_constraint(item, rows), rows)
        # Every user against all items of the batch; rows stay split.
        return jax.lax.with_sharding_constraint(user @ item.T, rows) / self.temperature[...]


def fsdp(mesh, leaf):
    if leaf.ndim == 2:
        return NamedSharding(mesh, P("fsdp", None))
    return NamedSharding(mesh, P())


def attach(mesh, tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=fsdp(mesh, x)), tree)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp", None))
    graphdef, params = nnx.split(nnx.eval_shape(lambda: TwoTower(rngs=nnx.Rngs(0))))
    tx = optax.adam(1e-3)
    opt_state = jax.eval_shape(tx.init, params)
    params, opt_state = attach(mesh, params), attach(mesh, opt_state)

    def loss_fn(params, batch):
        scores = nnx.merge(graphdef, params)(batch, rows)
        scores = scores - batch["log_frequency"][None, :]
        positive = jnp.diagonal(scores)
        return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - positive)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        grads = jax.lax.with_sharding_constraint(grads, jax.tree.map(lambda g: fsdp(mesh, g), grads))
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    split = NamedSharding(mesh, P("fsdp"))
    ids = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=split)
    batch = {
        "user": ids,
        "item": ids,
        "log_frequency": jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=split),
    }
    return jax.jit(train_step, donate_argnums=(0, 1)), (params, opt_state, batch)
