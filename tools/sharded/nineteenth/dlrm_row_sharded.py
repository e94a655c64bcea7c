# mypy: ignore-errors
"""Clean. Click prediction: the embedding tables and their row-wise Adagrad accumulators are split over rows,
the dense towers (2 MiB) are whole, and the batch is split over the same four chips.

The lookups are written by hand: every chip answers the whole batch's indices from its own rows, the sums
are scattered back to the batch; table and accumulator change only by the rows which the batch touched.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, DENSE, TABLES, ROWS, WIDTH = 2048, 13, 16, 65_536, 128
BOTTOM, TOP = (DENSE, 512, 256, WIDTH), (WIDTH + (TABLES + 1) * TABLES // 2, 512, 256, 1)
CHIP = "chip"


def tower_shapes(widths):
    pairs = zip(widths[:-1], widths[1:])
    return [{"w": (a, b), "b": (b,)} for a, b in pairs]


def tower(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def my_rows(indices, rows):
    """The indices as rows of this chip's part; those of other chips point behind its end."""
    local = indices - jax.lax.axis_index(CHIP) * rows
    return jnp.where((local >= 0) & (local < rows), local, rows)


def lookup(tables, indices):
    """tables: this chip's [table, row, width]; indices: this chip's [batch, table]."""
    asked = jax.lax.all_gather(indices, CHIP, tiled=True)
    rows = my_rows(asked, tables.shape[1])

    def one(table, rows):
        return table.at[rows].get(mode="fill", fill_value=0.0).astype(jnp.bfloat16)

    found = jax.vmap(one, in_axes=(0, 1), out_axes=1)(tables, rows)
    return jax.lax.psum_scatter(found, CHIP, tiled=True)


def adagrad_rows(tables, accumulator, indices, grads, rate=0.02):
    asked = jax.lax.all_gather(indices, CHIP, tiled=True)
    grads = jax.lax.all_gather(grads, CHIP, tiled=True)
    rows = my_rows(asked, tables.shape[1])

    def one(table, total, rows, grads):
        grads = grads.astype(jnp.float32)
        total = total.at[rows].add(jnp.mean(grads * grads, axis=-1), mode="drop")
        scale = jax.lax.rsqrt(total.at[rows].get(mode="fill", fill_value=1.0) + 1e-8)
        return table.at[rows].add(-rate * scale[:, None] * grads, mode="drop"), total

    return jax.vmap(one, in_axes=(0, 0, 1, 1))(tables, accumulator, rows, grads)


def click_loss(dense_params, embedded, batch):
    bottom = tower(dense_params["bottom"], jnp.log1p(batch["dense"]))
    features = jnp.concatenate([bottom[:, None], embedded.astype(jnp.float32)], axis=1)
    products = jnp.einsum("bid,bjd->bij", features, features)
    left, right = np.triu_indices(TABLES + 1, k=1)
    logit = tower(dense_params["top"], jnp.concatenate([bottom, products[:, left, right]], axis=1))[:, 0]
    loss = jnp.maximum(logit, 0) - logit * batch["click"] + jnp.log1p(jnp.exp(-jnp.abs(logit)))
    return loss.sum() / BATCH


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4), (CHIP,))
    by_rows, rows = P(None, CHIP), P(CHIP)

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), by_rows, by_rows, rows),
        out_specs=(P(), by_rows, by_rows, P()),
        check_vma=False,
    )
    def step(dense_params, tables, accumulator, batch):
        embedded = lookup(tables, batch["indices"])
        loss, (grads, toward) = jax.value_and_grad(click_loss, argnums=(0, 1))(dense_params, embedded, batch)
        loss, grads = jax.lax.psum((loss, grads), CHIP)
        dense_params = jax.tree.map(lambda p, g: p - 0.05 * g, dense_params, grads)
        tables, accumulator = adagrad_rows(tables, accumulator, batch["indices"], toward)
        return dense_params, tables, accumulator, loss

    def put(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    towers = {"bottom": tower_shapes(BOTTOM), "top": tower_shapes(TOP)}
    dense_params = jax.tree.map(lambda s: put(s, P()), towers, is_leaf=lambda s: isinstance(s, tuple))
    tables, accumulator = put((TABLES, ROWS, WIDTH), by_rows), put((TABLES, ROWS), by_rows)
    batch = {
        "dense": put((BATCH, DENSE), rows),
        "indices": put((BATCH, TABLES), rows, jnp.int32),
        "click": put((BATCH,), rows),
    }
    return jax.jit(step, donate_argnums=(0, 1, 2)), (dense_params, tables, accumulator, batch)
