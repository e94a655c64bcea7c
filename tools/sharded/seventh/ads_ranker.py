# mypy: ignore-errors
"""Fault: reshard. The pooled embeddings come out split over tables and are wanted split over the batch; the code first
makes them whole on every chip ("so that the slice is local"), which costs sixteen times the shard."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

TABLES, ROWS, DIM, HOTNESS, DENSE = 32, 262144, 64, 2, 64
BATCH = 131072
CHIPS = ("x", "y")


def mlp(ws, x, final=lambda v: v):
    for w in ws[:-1]:
        x = jax.nn.relu(x @ w)
    return final(x @ ws[-1])


def lookup(tables, ids):
    """tables [T, R, D]; ids [T, B, K] -> [T, B, D], one table per chip pair of a row."""
    rows = jax.vmap(lambda table, idx: jnp.take(table, idx, axis=0, mode="clip"))(tables, ids)
    return jnp.mean(rows, axis=2)


def by_allgather(pooled, mesh):
    whole = jax.lax.with_sharding_constraint(pooled, NamedSharding(mesh, P(None, None, None)))  # FAULT
    return jax.lax.with_sharding_constraint(whole, NamedSharding(mesh, P(None, CHIPS, None)))


def by_alltoall(pooled, mesh):
    return jax.lax.with_sharding_constraint(pooled, NamedSharding(mesh, P(None, CHIPS, None)))


def interact(dense, pooled):
    z = jnp.concatenate([dense[None], pooled], axis=0)
    grams = jnp.einsum("tbd,ubd->btu", z, z)
    upper = np.triu_indices(TABLES + 1, k=1)
    flat = grams.reshape(grams.shape[0], -1)
    return flat * jnp.asarray(np.isin(np.arange((TABLES + 1) ** 2), upper[0] * (TABLES + 1) + upper[1]), flat.dtype)


def score(params, tables, ids, dense_features, *, mesh, switch):
    pooled = lookup(tables, ids)
    pooled = jax.lax.with_sharding_constraint(pooled, NamedSharding(mesh, P(CHIPS, None, None)))
    pooled = switch(pooled, mesh)
    dense = mlp(params["bottom"], dense_features)
    features = jnp.concatenate([dense, interact(dense, pooled)], axis=-1)
    return mlp(params["top"], features, final=jax.nn.sigmoid)[:, 0]


def serve(devices, switch):
    mesh = jax.make_mesh((4, 4), CHIPS, axis_types=(AxisType.Auto,) * 2, devices=devices)
    ns = lambda *s: NamedSharding(mesh, P(*s))
    bf16 = jnp.bfloat16
    width = DIM + (TABLES + 1) ** 2

    def dense_stack(sizes):
        return [jax.ShapeDtypeStruct(s, bf16, sharding=ns()) for s in zip(sizes[:-1], sizes[1:])]

    params = {"bottom": dense_stack([DENSE, 256, DIM]), "top": dense_stack([width, 512, 256, 1])}
    tables = jax.ShapeDtypeStruct((TABLES, ROWS, DIM), bf16, sharding=ns(CHIPS, None, None))
    ids = jax.ShapeDtypeStruct((TABLES, BATCH, HOTNESS), jnp.int32, sharding=ns(CHIPS, None, None))
    dense = jax.ShapeDtypeStruct((BATCH, DENSE), bf16, sharding=ns(CHIPS, None))

    def entry(params, tables, ids, dense):
        return score(params, tables, ids, dense, mesh=mesh, switch=switch)

    return jax.jit(entry, out_shardings=ns(CHIPS)), (params, tables, ids, dense)


def make_faulty(devices):
    return serve(devices, by_allgather)


def make_fixed(devices):
    return serve(devices, by_alltoall)
