# mypy: ignore-errors
"""Fault: replicated. The edge states and messages are constrained to P() and are so whole on every chip, although the edge lists are divided over "graph"."""
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Layout:
    """How a mesh graph is laid out: the edges over the chips; the far fewer nodes and the narrow weights on all of them."""

    edge_index: P = field(default=P("graph"))
    edge_state: P = field(default=P())  # FAULT
    nodes: P = field(default=P())
    weights: P = field(default=P())


@dataclass(frozen=True)
class MeshGraphNet:
    mesh: Mesh
    layout: Layout = Layout()
    nodes: int = 8192
    edges: int = 98304
    node_in: int = 16
    width: int = 128
    rounds: int = 4

    def pin(self, x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def param_layout(self):
        d, lay = self.width, self.layout
        per_round = {"src": ((d, d), lay.weights), "dst": ((d, d), lay.weights), "edge": ((d, d), lay.weights),
                     "msg": ((d, d), lay.weights), "self": ((d, d), lay.weights), "agg": ((d, d), lay.weights)}
        return {"encode": ((self.node_in, d), lay.weights), "encode_edge": ((4, d), lay.weights),
                "decode": ((d, 3), lay.weights), "rounds": [dict(per_round) for _ in range(self.rounds)]}

    def message_pass(self, p, h, e, senders, receivers):
        # project the nodes first: far fewer rows than there are edges
        from_src = self.pin(h @ p["src"], self.layout.nodes)
        from_dst = self.pin(h @ p["dst"], self.layout.nodes)
        m = jax.nn.silu(from_src[senders] + from_dst[receivers] + e @ p["edge"])
        m = self.pin(jax.nn.silu(m @ p["msg"]), self.layout.edge_state)  # FAULT
        total = jax.ops.segment_sum(m, receivers, self.nodes)
        h = h + jax.nn.silu(h @ p["self"] + self.pin(total, self.layout.nodes) @ p["agg"])
        return self.pin(h, self.layout.nodes), m

    def __call__(self, params, batch):
        h = self.pin(batch["x"] @ params["encode"], self.layout.nodes)
        e = self.pin(batch["edge_attr"] @ params["encode_edge"], self.layout.edge_state)  # FAULT
        for p in params["rounds"]:
            h, m = self.message_pass(p, h, e, batch["senders"], batch["receivers"])
            e = e + m
        return h @ params["decode"]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("graph",))
    net = MeshGraphNet(mesh)
    tx = optax.adam(1e-4)
    entry = lambda x: isinstance(x, tuple)
    sds = lambda shape, dtype, spec: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    params = jax.tree.map(lambda e: sds(e[0], jnp.float32, e[1]), net.param_layout(), is_leaf=entry)
    opt_state = optax.tree_utils.tree_map_params(
        tx, lambda s, p: sds(s.shape, s.dtype, p.sharding.spec), jax.eval_shape(tx.init, params), params,
        transform_non_params=lambda s: sds(s.shape, s.dtype, P()))
    index = net.layout.edge_index
    batch = {"x": sds((net.nodes, net.node_in), jnp.float32, P()), "target": sds((net.nodes, 3), jnp.float32, P()),
             "edge_attr": sds((net.edges, 4), jnp.float32, index),
             "senders": sds((net.edges,), jnp.int32, index), "receivers": sds((net.edges,), jnp.int32, index)}

    def train(params, opt_state, batch):
        mse = lambda p: jnp.square(net(p, batch) - batch["target"]).mean()
        loss, grads = jax.value_and_grad(mse)(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return jax.jit(train, donate_argnums=(0, 1)), (params, opt_state, batch)
