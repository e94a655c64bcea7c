# mypy: ignore-errors
"""Clean. The moments of the entity table are split by rows as the table itself: the spec of a leaf is looked up by
the last part of its path.

Knowledge graph completion (RotatE) with a row-split entity table and Adam.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ENTITIES, RELATIONS, DIM = 131_072, 512, 256
BATCH, NEGATIVES, MARGIN = 4096, 16, 9.0

TABLE = {
    "entity": P(("host", "chip"), None),
    "relation": P(),
}


def path_of(path):
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)


def place(tree, mesh):
    """Shapes with the shardings of the table."""

    def one(path, x):
        name = path_of(path)
        spec = TABLE.get(name.rsplit("/", 1)[-1], P())
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(one, tree)


def rotate(head, phase):
    re, im = jnp.split(head, 2, axis=-1)
    c, s = jnp.cos(phase), jnp.sin(phase)
    return jnp.concatenate([re * c - im * s, re * s + im * c], axis=-1)


def distance(x, y):
    re, im = jnp.split(x - y, 2, axis=-1)
    return jnp.sum(jnp.sqrt(re * re + im * im + 1e-9), axis=-1)


def lookup(mesh):
    """Rows of a row-split table: each chip gives those it has, the sum has them all."""
    axes = ("host", "chip")

    def local(table, ids):
        rows = table.shape[0]
        mine = ids - jax.lax.axis_index(axes) * rows
        have = (mine >= 0) & (mine < rows)
        found = jnp.where(have[:, None], table[jnp.clip(mine, 0, rows - 1)], 0.0)
        return jax.lax.psum_scatter(found, axes, scatter_dimension=0, tiled=True)

    return jax.shard_map(local, mesh=mesh, in_specs=(P(axes, None), P()), out_specs=P(axes, None))


def build_loss(mesh):
    take = lookup(mesh)

    def loss(params, triples, corrupted):
        head = take(params["entity"], triples[:, 0])
        tail = take(params["entity"], triples[:, 2])
        phase = params["relation"][triples[:, 1]]
        guess = rotate(head, phase)
        positive = jax.nn.log_sigmoid(MARGIN - distance(guess, tail))

        @jax.checkpoint
        def negative(total, ids):
            fake = take(params["entity"], ids)
            return total + jnp.mean(jax.nn.log_sigmoid(distance(guess, fake) - MARGIN)), None

        others, _ = jax.lax.scan(negative, jnp.zeros(()), corrupted)
        return -(jnp.mean(positive) + others / NEGATIVES) / 2

    return loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("host", "chip"))
    tx = optax.adam(optax.cosine_decay_schedule(1e-3, 50_000), b2=0.99)
    params = {
        "entity": jax.ShapeDtypeStruct((ENTITIES, DIM), jnp.float32),
        "relation": jax.ShapeDtypeStruct((RELATIONS, DIM // 2), jnp.float32),
    }
    state = place(jax.eval_shape(tx.init, params), mesh)
    params = place(params, mesh)
    loss_fn = build_loss(mesh)

    def step(params, state, triples, corrupted):
        loss, grads = jax.value_and_grad(loss_fn)(params, triples, corrupted)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    whole = NamedSharding(mesh, P())
    triples = jax.ShapeDtypeStruct((BATCH, 3), jnp.int32, sharding=whole)
    corrupted = jax.ShapeDtypeStruct((NEGATIVES, BATCH), jnp.int32, sharding=whole)
    out = jax.tree.map(lambda x: x.sharding, (params, state))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, whole)), (params, state, triples, corrupted)
