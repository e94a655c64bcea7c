# mypy: ignore-errors
"""Clean. A click model with row-sharded embedding tables (shard_map lookup with a reduce-scatter) and a small replicated interaction network."""
import jax
import jax.numpy as jnp
import numpy as np
import equinox as eqx
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

FEATURES, ROWS, DIM, BATCH, DENSE = 8, 262144, 128, 8192, 16


class Cross(eqx.Module):
    """Deep and cross network, small enough for every chip."""

    cross: jax.Array
    deep: list
    head: jax.Array

    def __init__(self, key):
        width = FEATURES * DIM + DENSE
        k = jax.random.split(key, 4)
        self.cross = jax.random.normal(k[0], (2, width, 64)) * 0.01
        self.deep = [jax.random.normal(k[1], (width, 512)) * 0.03, jax.random.normal(k[2], (512, 256)) * 0.03]
        self.head = jax.random.normal(k[3], (width + 256,)) * 0.01

    def __call__(self, x0):
        x = x0
        for u in self.cross:
            x = x0 * ((x @ u) @ u.T) + x
        h = x0
        for w in self.deep:
            h = jax.nn.relu(h @ w)
        return jnp.concatenate([x, h], axis=-1) @ self.head


def local_lookup(table, ids):
    """Each chip has a range of rows; it answers for all ids and the answers are scattered back over the batch."""
    n = lax.axis_size("chips")
    rows = table.shape[0]
    offset = lax.axis_index("chips") * rows
    everyone = lax.all_gather(ids, "chips", axis=0, tiled=True)
    local = everyone - offset
    mine = (local >= 0) & (local < rows)
    found = jnp.where(mine[:, None], table[jnp.clip(local, 0, rows - 1)], 0)
    return lax.psum_scatter(found.reshape(n, -1, table.shape[1]), "chips", scatter_dimension=0, tiled=False)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    lookup = jax.shard_map(local_lookup, mesh=mesh, in_specs=(P("chips", None), P("chips")), out_specs=P("chips", None))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))

    def predict(net, tables, ids, dense):
        # One feature after the other: only one set of partial sums is alive at a time.
        emb = [lookup(tables[f], ids[:, f]) for f in range(FEATURES)]
        x = jnp.concatenate([*emb, dense], axis=-1).astype(jnp.float32)
        return net(lax.with_sharding_constraint(x, NamedSharding(mesh, P("chips", None))))

    def evaluate(net, tables, ids, dense, clicked):
        logit = predict(net, tables, ids, dense)
        nll = jnp.mean(jnp.logaddexp(0.0, logit) - clicked * logit)
        calibration = jnp.mean(jax.nn.sigmoid(logit)) / jnp.maximum(jnp.mean(clicked), 1e-6)
        return {"nll": nll, "calibration": calibration, "score": jax.nn.sigmoid(logit)}

    net = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep), jax.eval_shape(Cross, jax.random.key(0))
    )
    table = jax.ShapeDtypeStruct((ROWS, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, P("chips", None)))
    args = (
        net,
        [table] * FEATURES,
        jax.ShapeDtypeStruct((BATCH, FEATURES), jnp.int32, sharding=rows),
        jax.ShapeDtypeStruct((BATCH, DENSE), jnp.bfloat16, sharding=rows),
        jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows),
    )
    return jax.jit(evaluate, out_shardings={"nll": rep, "calibration": rep, "score": rows}), args
