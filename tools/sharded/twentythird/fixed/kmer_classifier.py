# mypy: ignore-errors
"""Clean. Training of a fastText-like classifier of DNA reads: embeddings of k-mers are averaged and sent through a
small network which predicts the genus; the tables are split by rows.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

K = 9
SPECIALS = ("<pad>", "<unk>", "<start>", "<stop>", "<mask>")
VOCABULARY = -(-(4**K + len(SPECIALS)) // 128) * 128
DIM, HIDDEN, GENERA = 192, 1024, 4096
BATCH, WINDOW = 256, 120


class Params(NamedTuple):
    kmers: jax.Array
    hidden: jax.Array
    genera: jax.Array


SHAPES = Params(kmers=(VOCABULARY, DIM), hidden=(DIM, HIDDEN), genera=(GENERA, HIDDEN))
WISHES = Params(kmers=("shard", None), hidden=(None, None), genera=("shard", None))


def fitting(mesh, shape, wishes):
    """The sharding which is wished for, as far as the mesh divides the shape."""
    names = [name if name and size % mesh.shape[name] == 0 else None for size, name in zip(shape, wishes)]
    return NamedSharding(mesh, P(*names))


def logits_of(params, reads):
    present = (reads != 0)[..., None]
    vectors = jnp.take(params.kmers, reads, axis=0) * present
    pooled = vectors.sum(axis=1) / jnp.maximum(present.sum(axis=1), 1)
    return jax.nn.gelu(pooled @ params.hidden) @ params.genera.T


def loss_fn(params, reads, genus):
    logits = logits_of(params, reads)
    chosen = jnp.take_along_axis(logits, genus[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)


def momentum_step(params, momentum, reads, genus, *, rate, beta, layout):
    loss, grads = jax.value_and_grad(loss_fn)(params, reads, genus)
    grads = jax.lax.with_sharding_constraint(grads, layout)
    momentum = jax.tree.map(lambda m, g: beta * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - rate * m, params, momentum)
    return params, momentum, loss


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("shard",))
    layout = Params(*(fitting(mesh, shape, wish) for shape, wish in zip(SHAPES, WISHES)))
    params = Params(*(
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape, sharding in zip(SHAPES, layout)
    ))
    by_read = NamedSharding(mesh, P("shard"))
    reads = jax.ShapeDtypeStruct((BATCH, WINDOW), jnp.int32, sharding=by_read)
    genus = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=by_read)
    step = partial(momentum_step, rate=0.05, beta=0.9, layout=layout)
    jitted = jax.jit(
        step,
        in_shardings=(layout, layout, by_read, by_read),
        out_shardings=(layout, layout, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return jitted, (params, params, reads, genus)
