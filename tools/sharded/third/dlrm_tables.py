# mypy: ignore-errors
"""Fault: donated. A recommender donates tables that are split over all four chips, but the jit returns them split over one axis of the mesh only."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
TABLES = {"user": 262144, "item": 524288, "category": 8192}
DIM, BATCH, DENSE = 128, 8192, 16


def interact(dense, *embedded):
    z = jnp.stack([dense, *embedded], 1)
    pairs = jnp.einsum("bid,bjd->bij", z, z)
    return jnp.concatenate([dense, pairs.reshape(z.shape[0], -1)], -1)


def tower(ws, x):
    for w in ws[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ ws[-1]


def click_loss(rows, mlps, dense, clicked):
    bottom = tower(mlps["bottom"], dense)
    logit = tower(mlps["top"], interact(bottom, *(rows[n] for n in sorted(rows))))[:, 0]
    return jnp.mean(jax.nn.softplus(logit) - clicked * logit)


def train(tables, mlps, ids, dense, clicked):
    rows = {n: tables[n][ids[n]] for n in tables}
    by_row, by_mlp = jax.grad(click_loss, (0, 1))(rows, mlps, dense, clicked)
    tables = {n: tables[n].at[ids[n]].add(-0.05 * by_row[n]) for n in tables}
    return tables, jax.tree.map(lambda p, g: p - 0.05 * g, mlps, by_mlp)


def layouts(mesh, rows):
    return {name: NamedSharding(mesh, P(rows, None)) for name in TABLES}  # FAULT


def build(devices, result_rows):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("rows", "cols"))
    rep, batch = NamedSharding(mesh, P()), NamedSharding(mesh, P(("rows", "cols")))
    f32 = lambda shape, sharding: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    incoming = layouts(mesh, ("rows", "cols"))
    tables = {n: f32((size, DIM), incoming[n]) for n, size in TABLES.items()}
    mlps = {
        "bottom": [f32((DENSE, 256), rep), f32((256, DIM), rep)],
        "top": [f32((DIM + 16, 512), rep), f32((512, 256), rep), f32((256, 1), rep)],
    }
    ids = {n: jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=batch) for n in TABLES}
    returned = layouts(mesh, result_rows)  # FAULT
    step = jax.jit(train, donate_argnums=(0, 1), out_shardings=(returned, rep))  # FAULT
    return step, (tables, mlps, ids, f32((BATCH, DENSE), batch), f32((BATCH,), batch))


def make_faulty(devices):
    return build(devices, "rows")  # FAULT


def make_fixed(devices):
    return build(devices, ("rows", "cols"))
