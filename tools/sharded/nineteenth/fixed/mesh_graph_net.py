# mypy: ignore-errors
"""Clean. The edges with their features are split over the chips as the nodes are.

Graph network surrogate of a structural solver (one large finite-element mesh per step), equinox, trained on
four chips with the nodes split.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

NODES, EDGES = 65_536, 262_144
NODE_IN, EDGE_IN, HIDDEN, ROUNDS, OUT = 16, 8, 128, 4, 3


class MLP(eqx.Module):
    first: jax.Array
    second: jax.Array

    def __init__(self, n_in, key, n_out=HIDDEN):
        a, b = jax.random.split(key)
        self.first = jax.random.normal(a, (n_in, HIDDEN)) * n_in**-0.5
        self.second = jax.random.normal(b, (HIDDEN, n_out)) * HIDDEN**-0.5

    def __call__(self, x):
        return jax.nn.silu(x @ self.first.astype(x.dtype)) @ self.second.astype(x.dtype)


def normalise(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


class Round(eqx.Module):
    edge: MLP
    node: MLP

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.edge, self.node = MLP(3 * HIDDEN, a), MLP(2 * HIDDEN, b)

    def __call__(self, nodes, edges, graph):
        ends = (nodes[graph["senders"]], nodes[graph["receivers"]])
        edges = normalise(edges + self.edge(jnp.concatenate([edges, *ends], axis=-1)))
        inbox = jax.ops.segment_sum(edges, graph["receivers"], NODES)
        nodes = normalise(nodes + self.node(jnp.concatenate([nodes, inbox], axis=-1)))
        return nodes, edges


class GraphNet(eqx.Module):
    encode_node: MLP
    encode_edge: MLP
    rounds: list[Round]
    decode: MLP

    def __init__(self, key):
        keys = jax.random.split(key, ROUNDS + 3)
        self.encode_node, self.encode_edge = MLP(NODE_IN, keys[0]), MLP(EDGE_IN, keys[1])
        self.rounds = [Round(k) for k in keys[3:]]
        self.decode = MLP(HIDDEN, keys[2], OUT)

    def __call__(self, graph):
        nodes = self.encode_node(graph["nodes"].astype(jnp.bfloat16))
        edges = self.encode_edge(graph["edges"].astype(jnp.bfloat16))
        for one in self.rounds:
            nodes, edges = eqx.filter_checkpoint(one)(nodes, edges, graph)
        return self.decode(nodes).astype(jnp.float32)


def graph_shapes():
    return {
        "nodes": jax.ShapeDtypeStruct((NODES, NODE_IN), jnp.float32),
        "target": jax.ShapeDtypeStruct((NODES, OUT), jnp.float32),
        "edges": jax.ShapeDtypeStruct((EDGES, EDGE_IN), jnp.float32),
        "senders": jax.ShapeDtypeStruct((EDGES,), jnp.int32),
        "receivers": jax.ShapeDtypeStruct((EDGES,), jnp.int32),
    }


def graph_spec(_name):
    return P("graph")


def loss_fn(model, graph):
    return jnp.mean((model(graph) - graph["target"]) ** 2)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("graph",))
    whole = NamedSharding(mesh, P())
    tx = optax.adam(optax.exponential_decay(1e-3, 10_000, 0.5))
    model = eqx.filter_eval_shape(GraphNet, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, model)

    def step(model, opt_state, graph):
        loss, grads = jax.value_and_grad(loss_fn)(model, graph)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, loss

    model, opt_state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), (model, opt_state)
    )
    graph = {
        name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, graph_spec(name)))
        for name, x in graph_shapes().items()
    }
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=whole), (model, opt_state, graph)
