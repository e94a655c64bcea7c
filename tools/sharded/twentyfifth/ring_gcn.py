# mypy: ignore-errors
"""Clean. Full-graph training of a graph convolution network for node classification: the nodes are split over the
devices, edges are bucketed by (owner of the target, owner of the source), and blocks of features go round in a ring.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

NODES_EACH = 32_768
EDGES_EACH = 24_576  # per pair of owners, filled up with edges of weight zero
WIDTHS = (128, 256, 256, 64)
AXIS = "nodes"


def init_params(key):
    params = []
    for i, (m, n) in enumerate(zip(WIDTHS[:-1], WIDTHS[1:])):
        k = jax.random.fold_in(key, i)
        params.append({"w": jax.random.normal(k, (m, n)) * m**-0.5, "b": jnp.zeros((n,))})
    return params


def aggregate(h, edges):
    """Sum over incoming edges. h: own nodes' features; edges: own targets, by owner of the source."""
    count = lax.axis_size(AXIS)
    me = lax.axis_index(AXIS)
    ring = [(i, (i - 1) % count) for i in range(count)]

    def visit(carry, turn):
        block, total = carry
        owner = (me + turn) % count
        source, target, weight = (lax.dynamic_index_in_dim(e, owner, keepdims=False) for e in edges)
        message = block[source] * weight[:, None]
        total = total + jax.ops.segment_sum(message, target, num_segments=NODES_EACH)
        return (lax.ppermute(block, AXIS, ring), total), None

    # Linear in h: the backward pass needs the edges only, no block is kept.
    (_, total), _ = lax.scan(visit, (h, jnp.zeros_like(h)), jnp.arange(count))
    return total


def network(params, x, edges):
    for i, layer in enumerate(params):
        last = i == len(params) - 1

        @jax.checkpoint
        def apply(layer, x):
            h = x @ layer["w"] if last else x  # aggregate on the narrower side
            h = aggregate(h, edges)
            h = (h if last else h @ layer["w"]) + layer["b"]
            return h if last else jax.nn.relu(h)

        x = apply(layer, x)
    return x


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), (AXIS,))
    count = mesh.size
    tx = optax.adam(1e-2)

    def local_loss(params, x, edges, labels, train_mask):
        edges = tuple(e[0] for e in edges)
        logits = network(params, x, edges)
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        total = lax.psum(jnp.sum(nll * train_mask), AXIS)
        return total / lax.psum(jnp.sum(train_mask), AXIS)

    split = P(AXIS)
    loss_fn = jax.shard_map(
        local_loss, mesh=mesh, in_specs=(P(), split, (split, split, split), split, split), out_specs=P()
    )

    def train_step(params, opt_state, x, edges, labels, train_mask):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, edges, labels, train_mask)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, split)
    struct = lambda shape, dtype, s: jax.ShapeDtypeStruct(shape, dtype, sharding=s)
    everywhere = lambda tree: jax.tree.map(lambda a: struct(a.shape, a.dtype, whole), tree)
    # The weights are less than a MiB: they and their moments may lie on every device.
    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)

    nodes = count * NODES_EACH
    table = (count, count, EDGES_EACH)
    edges = (
        struct(table, jnp.int32, rows),
        struct(table, jnp.int32, rows),
        struct(table, jnp.float32, rows),
    )
    arguments = (
        everywhere(params),
        everywhere(opt_state),
        struct((nodes, WIDTHS[0]), jnp.float32, rows),
        edges,
        struct((nodes,), jnp.int32, rows),
        struct((nodes,), jnp.float32, rows),
    )
    return jax.jit(train_step, out_shardings=(whole, whole, whole), donate_argnums=(0, 1)), arguments
