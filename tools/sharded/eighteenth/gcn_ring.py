# mypy: ignore-errors
"""Clean. Full-graph GCN training: nodes and edges are partitioned over the devices and the feature blocks
go around a ring, so no device ever holds the features of all nodes; the dense layers are whole by choice.

Edges are bucketed beforehand by (block of destination, block of source) and padded with weight zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PARTS = 8
NODES = 262_144
EDGES_PER_BUCKET = 16_384
FEATURES, HIDDEN, CLASSES = 128, 192, 40
DROPOUT = 0.3

WIDTHS = (FEATURES, HIDDEN, HIDDEN, CLASSES)


def ring_aggregate(x, graph):
    """sum over edges (j -> i) of weight * x[j] for the nodes i that live here."""
    me = lax.axis_index("g")
    shift = [(i, (i - 1) % PARTS) for i in range(PARTS)]  # after s hops I hold block me + s

    def hop(carry, s):
        block, total = carry
        owner = (me + s) % PARTS
        src, dst, weight = (lax.dynamic_index_in_dim(a, owner, keepdims=False) for a in graph)
        messages = block[src] * weight[:, None]
        total = total.at[dst].add(messages)
        return (lax.ppermute(block, "g", shift), total), None

    (_, total), _ = lax.scan(hop, (x, jnp.zeros_like(x)), jnp.arange(PARTS))
    return total


def gcn_layer(params, x, graph, last, key):
    # narrow side first: aggregate whichever of input and output is thinner
    wide_in = params["w"].shape[0] > params["w"].shape[1]
    if wide_in:
        y = ring_aggregate(x @ params["w"], graph)
    else:
        y = ring_aggregate(x, graph) @ params["w"]
    y = y + x @ params["skip"] + params["b"]
    if last:
        return y
    keep = jax.random.bernoulli(key, 1.0 - DROPOUT, y.shape)
    return jnp.where(keep, jax.nn.relu(y) / (1.0 - DROPOUT), 0.0)


def forward(params, x, graph, key):
    for i, layer in enumerate(params):
        last = i + 1 == len(params)
        run = jax.checkpoint(lambda p, x, k, last=last: gcn_layer(p, x, graph, last, k))
        x = run(layer, x, jax.random.fold_in(key, i))
    return x


def local_loss(params, x, graph, labels, train_mask, key):
    logits = forward(params, x, graph, key)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    count = lax.psum(train_mask.sum(), "g")
    return jnp.sum(nll * train_mask) / jnp.maximum(count, 1.0)


def make_local_step(tx):
    def local_step(params, opt_state, x, graph, labels, train_mask, key_data):
        graph = jax.tree.map(lambda a: a[0], graph)  # my row of buckets
        key = jax.random.fold_in(jax.random.wrap_key_data(key_data), lax.axis_index("g"))
        loss, grads = jax.value_and_grad(local_loss)(params, x, graph, labels, train_mask, key)
        grads, loss = lax.psum((grads, loss), "g")
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return local_step


def dense_shapes():
    return [
        {
            "w": jax.ShapeDtypeStruct((a, b), jnp.float32),
            "skip": jax.ShapeDtypeStruct((a, b), jnp.float32),
            "b": jax.ShapeDtypeStruct((b,), jnp.float32),
        }
        for a, b in zip(WIDTHS[:-1], WIDTHS[1:])
    ]


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(PARTS), ("g",))
    tx = optax.adam(1e-2)
    params = dense_shapes()
    opt_state = jax.eval_shape(tx.init, params)
    step = jax.shard_map(
        make_local_step(tx),
        mesh=mesh,
        in_specs=(P(), P(), P("g"), P("g"), P("g"), P("g"), P()),
        out_specs=(P(), P(), P()),
        check_vma=False,
    )

    def put(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params, opt_state = jax.tree.map(lambda x: put(x.shape, x.dtype, P()), (params, opt_state))
    buckets = (PARTS, PARTS, EDGES_PER_BUCKET)
    graph = (
        put(buckets, jnp.int32, P("g")),  # source, within its block
        put(buckets, jnp.int32, P("g")),  # destination, within mine
        put(buckets, jnp.float32, P("g")),  # 1 / sqrt(deg deg), zero for padding
    )
    x = put((NODES, FEATURES), jnp.float32, P("g"))
    labels = put((NODES,), jnp.int32, P("g"))
    train_mask = put((NODES,), jnp.float32, P("g"))
    key_data = put((2,), jnp.uint32, P())
    fn = jax.jit(step, donate_argnums=(0, 1))
    return fn, (params, opt_state, x, graph, labels, train_mask, key_data)
