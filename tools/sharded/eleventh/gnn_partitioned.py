# mypy: ignore-errors
"""Clean. Full-graph node classification on a partitioned graph: each device holds its nodes and the
edges into them, and only the boundary nodes are exchanged (all-to-all) in each layer."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PARTS = 8
NODES = 8192  # per part
EDGES = 65536  # per part, padded with edges to the dummy node
HALO = 256  # nodes a part sends to each other part
FEATURES, HIDDEN, CLASSES = 128, 128, 47


class SageConv(eqx.Module):
    own: eqx.nn.Linear
    neigh: eqx.nn.Linear

    def __init__(self, n_in, n_out, key):
        k1, k2 = jax.random.split(key)
        self.own = eqx.nn.Linear(n_in, n_out, key=k1)
        self.neigh = eqx.nn.Linear(n_in, n_out, use_bias=False, key=k2)

    def __call__(self, h, graph):
        table = jnp.concatenate([h, exchange(h, graph["send"])])
        messages = table[graph["src"]]
        total = jax.ops.segment_sum(messages, graph["dst"], num_segments=NODES + 1)[:NODES]
        mean = total / jnp.maximum(graph["degree"], 1.0)[:, None]
        return jax.vmap(self.own)(h) + jax.vmap(self.neigh)(mean)


class Sage(eqx.Module):
    convs: list

    def __init__(self, key):
        widths = (FEATURES, HIDDEN, HIDDEN, CLASSES)
        keys = jax.random.split(key, len(widths) - 1)
        self.convs = [SageConv(a, b, k) for a, b, k in zip(widths[:-1], widths[1:], keys)]

    def __call__(self, h, graph):
        for i, conv in enumerate(self.convs):
            # messages (one row per edge) are recomputed in the backward pass
            h = eqx.filter_checkpoint(conv)(h, graph)
            if i + 1 < len(self.convs):
                h = jax.nn.relu(h)
        return h


def exchange(h, send):
    """Rows `send[p]` go to part p; returns the rows of the other parts, (PARTS * HALO, width)."""
    outgoing = h[send]  # PARTS, HALO, width
    incoming = lax.all_to_all(outgoing, "part", split_axis=0, concat_axis=0, tiled=True)
    return incoming.reshape(-1, h.shape[-1])


def abstract_graph():
    """Local arrays of one part; all of them are concatenated along their first dimension."""
    i32, f32 = jnp.int32, jnp.float32
    return {
        "features": ((NODES, FEATURES), f32), "labels": ((NODES,), i32), "train": ((NODES,), f32),
        "degree": ((NODES,), f32), "src": ((EDGES,), i32), "dst": ((EDGES,), i32), "send": ((PARTS, HALO), i32),
    }


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("part",))
    tx = optax.adam(1e-3)
    model = eqx.filter_eval_shape(Sage, jax.random.key(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def local_loss(params, graph, n_train):
        logits = eqx.combine(params, static)(graph["features"], graph)
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, graph["labels"])
        return jnp.sum(nll * graph["train"]) / n_train

    def step(params, opt_state, graph):
        n_train = lax.psum(graph["train"].sum(), "part")
        loss, grads = jax.value_and_grad(local_loss)(params, graph, n_train)
        loss, grads = lax.psum((loss, grads), "part")
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    whole, parts = P(), P("part")
    sharded = jax.shard_map(step, mesh=mesh, in_specs=(whole, whole, parts), out_specs=(whole, whole, whole),
                            check_vma=False)
    graph = {
        name: jax.ShapeDtypeStruct((PARTS * shape[0], *shape[1:]), dtype, sharding=NamedSharding(mesh, parts))
        for name, (shape, dtype) in abstract_graph().items()
    }
    # the network has some 80 thousand weights: copies
    small = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, whole)),
        (params, jax.eval_shape(tx.init, params)),
    )
    return jax.jit(sharded, donate_argnums=(0, 1)), (*small, graph)
