# mypy: ignore-errors
"""Fault: reshard. The pooled embeddings go from table-split to batch-split by an all_gather
and a slice, so every device holds the whole (batch, tables, dim) block, and its cotangent, where an
all_to_all would move the same rows with an eighth of the memory.

DLRM-style click-through model: embedding tables are placed table-wise over the devices, the two
MLPs are data parallel, and the step between them exchanges pooled rows.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

AXIS = "dev"
NUM_TABLES = 32
ROWS = 40_000
DIM = 64
HOTS = 2
BATCH = 8192
DENSE = 13
BOTTOM = (DENSE, 256, 128, DIM)
PAIRS = (NUM_TABLES + 1) * NUM_TABLES // 2
TOP = (PAIRS + DIM, 512, 256, 1)
LR = 0.02


def mlp_shapes(widths):
    return [
        {"w": jax.ShapeDtypeStruct((a, b), jnp.float32), "b": jax.ShapeDtypeStruct((b,), jnp.float32)}
        for a, b in zip(widths[:-1], widths[1:])
    ]


def run_mlp(layers, x, final_relu):
    for i, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"]
        if final_relu or i + 1 < len(layers):
            x = jax.nn.relu(x)
    return x


def lookup(tables, ids):
    """Sum-pool the rows of the tables this device owns, for the whole global batch."""

    def one(table, idx):  # (rows, dim), (batch, hots)
        return table[idx].sum(axis=1)

    return jax.vmap(one, in_axes=(0, 1), out_axes=1)(tables, ids)


def to_batch_shards(pooled):
    """(batch, my tables, dim) -> (my batch, tables, dim)."""
    n = lax.axis_size(AXIS)
    rows = pooled.shape[0] // n
    everyone = lax.all_gather(pooled, AXIS, axis=1, tiled=True)  # FAULT
    return lax.dynamic_slice_in_dim(everyone, lax.axis_index(AXIS) * rows, rows, axis=0)  # FAULT


def interact(dense_vec, sparse):
    feats = jnp.concatenate([dense_vec[:, None, :], sparse], axis=1)
    gram = jnp.einsum("bid,bjd->bij", feats, feats)
    i, j = np.tril_indices(NUM_TABLES + 1, k=-1)
    return jnp.concatenate([dense_vec, gram[:, i, j]], axis=-1)


def local_loss(params, dense, ids, clicks):
    pooled = lookup(params["tables"], ids)
    sparse = to_batch_shards(pooled)
    bottom = run_mlp(params["bottom"], dense, final_relu=True)
    logit = run_mlp(params["top"], interact(bottom, sparse), final_relu=False)[:, 0]
    nll = jnp.maximum(logit, 0) - logit * clicks + jnp.log1p(jnp.exp(-jnp.abs(logit)))
    return nll.sum() / BATCH


def local_step(params, dense, ids, clicks):
    loss, grads = jax.value_and_grad(local_loss)(params, dense, ids, clicks)
    shared = lax.psum({"bottom": grads["bottom"], "top": grads["top"]}, AXIS)
    new = {
        "tables": params["tables"] - LR * grads["tables"],
        "bottom": jax.tree.map(lambda p, g: p - LR * g, params["bottom"], shared["bottom"]),
        "top": jax.tree.map(lambda p, g: p - LR * g, params["top"], shared["top"]),
    }
    return new, lax.psum(loss, AXIS)


def param_shapes():
    return {
        "tables": jax.ShapeDtypeStruct((NUM_TABLES, ROWS, DIM), jnp.float32),
        "bottom": mlp_shapes(BOTTOM),
        "top": mlp_shapes(TOP),
    }


def param_specs(shapes):
    specs = jax.tree.map(lambda _: P(), shapes)
    specs["tables"] = P(AXIS)
    return specs


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), (AXIS,))
    shapes = param_shapes()
    specs = param_specs(shapes)
    body = partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(specs, P(AXIS), P(None, AXIS), P(AXIS)),
        out_specs=(specs, P()),
        check_vma=False,
    )(local_step)
    step = jax.jit(body, donate_argnums=0)

    def put(shape, spec):
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(put, shapes, specs)
    dense = put(jax.ShapeDtypeStruct((BATCH, DENSE), jnp.float32), P(AXIS))
    ids = put(jax.ShapeDtypeStruct((BATCH, NUM_TABLES, HOTS), jnp.int32), P(None, AXIS))
    clicks = put(jax.ShapeDtypeStruct((BATCH,), jnp.float32), P(AXIS))
    return step, (params, dense, ids, clicks)
