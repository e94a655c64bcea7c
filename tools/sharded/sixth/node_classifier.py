# mypy: ignore-errors
"""Clean. Full-graph GNN training: nodes and edges are split over the chips, the small weights are replicated, each layer gathers node features in bf16."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

NODES, EDGES, FEATS, HIDDEN, CLASSES, DEPTH = 65_536, 524_288, 256, 128, 40, 2


class SageLayer(eqx.Module):
    self_w: jax.Array
    neigh_w: jax.Array
    bias: jax.Array

    def __init__(self, key, i, o):
        a, b = jax.random.split(key)
        self.self_w = jax.random.normal(a, (i, o)) * i**-0.5
        self.neigh_w = jax.random.normal(b, (i, o)) * i**-0.5
        self.bias = jnp.zeros((o,))

    def __call__(self, x, aggregate):
        return x @ self.self_w + aggregate(x @ self.neigh_w) + self.bias


class Sage(eqx.Module):
    layers: list
    head: jax.Array

    def __init__(self, key):
        keys = jax.random.split(key, DEPTH + 1)
        dims = [FEATS] + [HIDDEN] * DEPTH
        self.layers = [SageLayer(k, i, o) for k, i, o in zip(keys, dims[:-1], dims[1:])]
        self.head = jax.random.normal(keys[-1], (HIDDEN, CLASSES)) * HIDDEN**-0.5

    def __call__(self, x, aggregate):
        for layer in self.layers:
            x = jax.nn.relu(layer(x, aggregate))
        return x @ self.head


def make_aggregate(mesh, senders, receivers, inv_degree):
    """Edges are sorted by receiver, so a chip's edges end in its own nodes; only sender features come from elsewhere."""

    def local(x, send, recv, inv):
        everyone = jax.lax.all_gather(x.astype(jnp.bfloat16), "part", axis=0, tiled=True)
        base = jax.lax.axis_index("part") * x.shape[0]
        summed = jax.ops.segment_sum(everyone[send].astype(jnp.float32), recv - base, num_segments=x.shape[0])
        return summed * inv[:, None]

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("part"), out_specs=P("part"))
    return jax.checkpoint(lambda x: mapped(x, senders, receivers, inv_degree))


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("part",))
    part, rep = NamedSharding(mesh, P("part")), NamedSharding(mesh, P())
    tx = optax.adam(1e-2)

    def init():
        model = Sage(jax.random.key(0))
        return model, tx.init(model)

    model, opt = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=rep), jax.eval_shape(init))

    def loss_fn(model, graph):
        agg = make_aggregate(mesh, graph["senders"], graph["receivers"], graph["inv_degree"])
        logits = model(graph["x"], agg)
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, graph["y"])
        return jnp.sum(ce * graph["train_mask"]) / jnp.sum(graph["train_mask"])

    def step(model, opt, graph):
        loss, grads = jax.value_and_grad(loss_fn)(model, graph)
        updates, opt = tx.update(grads, opt, model)
        return optax.apply_updates(model, updates), opt, loss

    def rows(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=part)

    graph = {
        "x": rows(NODES, FEATS), "y": rows(NODES, dtype=jnp.int32), "train_mask": rows(NODES),
        "inv_degree": rows(NODES), "senders": rows(EDGES, dtype=jnp.int32), "receivers": rows(EDGES, dtype=jnp.int32),
    }
    return jax.jit(step, donate_argnums=(0, 1)), (model, opt, graph)
