# mypy: ignore-errors
"""Clean. Candidate retrieval for a recommender: an equinox user tower over the click history, a catalogue split by
items over sixteen chips, scores in chunks of users, the best items found per chip and then merged.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ITEMS = 8_388_608
DIM = 128
USERS = 1024
CHUNK = 64
HISTORY = 32
TOP = 100


class UserTower(eqx.Module):
    decay: jax.Array
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.decay = jnp.zeros((HISTORY,))
        self.hidden = eqx.nn.Linear(DIM, 4 * DIM, key=first)
        self.output = eqx.nn.Linear(4 * DIM, DIM, key=second)

    def __call__(self, clicks):
        pooled = jax.nn.softmax(self.decay) @ clicks
        user = self.output(jax.nn.gelu(self.hidden(pooled)))
        return user / (jnp.linalg.norm(user) + 1e-6)


def lookup(catalogue, ids):
    """Rows of a catalogue that is split by items: every chip gives those it holds."""
    held = catalogue.shape[0]
    local = ids - lax.axis_index("items") * held
    mine = (local >= 0) & (local < held)
    rows = catalogue[jnp.clip(local, 0, held - 1)]
    return lax.psum(jnp.where(mine[..., None], rows, 0).astype(jnp.float32), "items")


def best_of_shard(catalogue, penalty, users):
    scores = jnp.einsum("ud,id->ui", users.astype(jnp.bfloat16), catalogue,
                        preferred_element_type=jnp.float32) - penalty
    values, index = lax.approx_max_k(scores, TOP, recall_target=0.97)
    return values, index + lax.axis_index("items") * catalogue.shape[0]


def merge(values, index):
    values = lax.all_gather(values, "items", axis=1, tiled=True)
    index = lax.all_gather(index, "items", axis=1, tiled=True)
    values, order = lax.top_k(values, TOP)
    return values, jnp.take_along_axis(index, order, axis=1)


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(16), ("items",))
    whole = NamedSharding(mesh, P())
    by_item = NamedSharding(mesh, P("items"))
    tower = eqx.filter_eval_shape(UserTower, jax.random.key(0))
    weights, static = eqx.partition(tower, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def retrieve(weights, catalogue, penalty, history):
        model = eqx.combine(weights, static)

        def one_chunk(ids):
            users = jax.vmap(model)(lookup(catalogue, ids))
            return merge(*best_of_shard(catalogue, penalty, users))

        values, index = lax.map(one_chunk, history.reshape(USERS // CHUNK, CHUNK, HISTORY))
        return values.reshape(USERS, TOP), index.reshape(USERS, TOP)

    sharded = jax.shard_map(
        retrieve, mesh=mesh, in_specs=(P(), P("items", None), P("items"), P()), out_specs=(P(), P()),
        check_vma=False)
    arguments = (
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), weights),
        jax.ShapeDtypeStruct((ITEMS, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, P("items", None))),
        jax.ShapeDtypeStruct((ITEMS,), jnp.float32, sharding=by_item),
        jax.ShapeDtypeStruct((USERS, HISTORY), jnp.int32, sharding=whole),
    )
    return jax.jit(sharded, out_shardings=(whole, whole)), arguments
