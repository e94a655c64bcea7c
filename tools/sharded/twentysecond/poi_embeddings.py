# mypy: ignore-errors
"""Clean. Next-place prediction: a large table of places split by rows over all chips, looked up by a masked gather
and a reduce-scatter. The user's history ids are whole on every chip by design: each chip looks for its own rows.

Plain SGD on the table (the update stays where the rows are), whole weights for the small recurrent mixer.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

PLACES, DIM, USERS, VISITS, DECOYS = 1_048_576, 128, 4096, 32, 1024
ALL = ("y", "x")


def take_rows(shard, ids):
    """This chip's share of the looked-up rows; ids are those of the whole batch."""
    first = jax.lax.axis_index(ALL) * shard.shape[0]
    local = ids - first
    found = jnp.where((local >= 0) & (local < shard.shape[0]), local, shard.shape[0])
    rows = shard.at[found].get(mode="fill", fill_value=0)
    return jax.lax.psum_scatter(rows, ALL, scatter_dimension=0, tiled=True)


def summarise(mixer, visits):
    """Exponentially forgetting, gated summary of a user's visits."""
    gate = jax.nn.sigmoid(visits @ mixer["gate"])
    value = jnp.tanh(visits @ mixer["value"])

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, state = jax.lax.associative_scan(combine, (gate, (1 - gate) * value), axis=1)
    return state[:, -1] @ mixer["out"]


def loss_of(table, mixer, history, following, decoys):
    visits = take_rows(table, history.reshape(-1)).reshape(-1, VISITS, DIM)
    user = jax.checkpoint(summarise)(mixer, visits)
    target = take_rows(table, following)
    others = jax.lax.all_gather(take_rows(table, decoys), ALL, axis=0, tiled=True)
    good = jnp.sum(user * target, axis=-1)
    bad = user @ others.T
    nll = jax.nn.logsumexp(jnp.concatenate([good[:, None], bad], axis=-1), axis=-1) - good
    return nll.mean()


def local_step(table, mixer, history, following, decoys):
    loss, (g_table, g_mixer) = jax.value_and_grad(loss_of, argnums=(0, 1))(
        table, mixer, history, following, decoys
    )
    chips = jax.lax.axis_size(ALL)
    table = table - 0.5 * g_table / chips
    mixer = jax.tree.map(lambda w, g: w - 0.05 * jax.lax.pmean(g, ALL), mixer, g_mixer)
    return table, mixer, jax.lax.pmean(loss, ALL)


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ALL)
    by_row = P(ALL)
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(by_row, P(), P(), P(), P()),
        out_specs=(by_row, P(), P()),
        check_vma=False,
    )

    def array(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    table = array((PLACES, DIM), jnp.float32, by_row)
    mixer = {name: array((DIM, DIM), jnp.float32, P()) for name in ("gate", "value", "out")}
    ids = (
        array((USERS, VISITS), jnp.int32, P()),
        array((USERS,), jnp.int32, P()),
        array((DECOYS,), jnp.int32, P()),
    )
    return jax.jit(step, donate_argnums=(0, 1)), (table, mixer, *ids)
