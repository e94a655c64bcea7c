# mypy: ignore-errors
"""Fault: replicated. A message passing network over a simulation mesh whose nodes are split over the chips, while the table of specs leaves everything about edges on all of them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:2x2"
NODES, EDGES, D, ROUNDS = 16384, 131072, 128, 3

FEATURES = {
    "node_x": ((NODES, D), jnp.float32),
    "node_y": ((NODES, D), jnp.float32),
    "edge_x": ((EDGES, D), jnp.float32),
    "senders": ((EDGES,), jnp.int32),
    "receivers": ((EDGES,), jnp.int32),
}


def specs(by_edge):
    table = {name: PartitionSpec("graph") for name in FEATURES if name.startswith("node")}
    table["edge_x"] = by_edge  # FAULT
    table["senders"] = by_edge  # FAULT
    table["receivers"] = by_edge  # FAULT
    return table


def mlp(p, x):
    return jax.nn.relu(x @ p["a"]) @ p["b"]


def rounds(params, graph):
    v, e = graph["node_x"], graph["edge_x"]
    for p in params:
        inputs = jnp.concatenate([e, v[graph["senders"]], v[graph["receivers"]]], -1)  # FAULT
        e = e + mlp(p["edge"], inputs)
        incoming = jax.ops.segment_sum(e, graph["receivers"], num_segments=NODES)
        v = v + mlp(p["node"], jnp.concatenate([v, incoming], -1))
    return v


def objective(params, graph):
    return jnp.mean((rounds(params, graph) - graph["node_y"]) ** 2)


def build(devices, by_edge):
    mesh = Mesh(np.array(devices), ("graph",))
    table = specs(by_edge)
    graph = {n: jax.ShapeDtypeStruct(s, t, sharding=NamedSharding(mesh, table[n])) for n, (s, t) in FEATURES.items()}
    w = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    params = [{"edge": {"a": w(3 * D, D), "b": w(D, D)}, "node": {"a": w(2 * D, D), "b": w(D, D)}} for _ in range(ROUNDS)]

    @jax.jit
    def update(params, graph):
        grads = jax.grad(objective)(params, graph)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)

    return update, (params, graph)


def make_faulty(devices):
    return build(devices, PartitionSpec())  # FAULT


def make_fixed(devices):
    return build(devices, PartitionSpec("graph"))
