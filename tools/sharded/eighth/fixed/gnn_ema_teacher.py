# mypy: ignore-errors
"""Fault: optimizer. The exponential moving average of the weights is placed whole on every device, while the weights
and the Adam moments are split over `shard`; the EMA costs eight times its share."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

NODES, EDGES, FEATURES, WIDTH, ROUNDS, CLASSES = 4096, 16_384, 128, 1024, 4, 64


@struct.dataclass
class TrainState:
    step: jax.Array
    params: dict
    ema: dict
    opt_state: optax.OptState


def init_params(key):
    keys = jax.random.split(key, ROUNDS + 2)
    glorot = jax.nn.initializers.glorot_uniform()
    params = {"encode": glorot(keys[0], (FEATURES, WIDTH)), "readout": glorot(keys[1], (WIDTH, CLASSES))}
    for i in range(ROUNDS):
        a, b, c = jax.random.split(keys[i + 2], 3)
        params[f"round_{i}"] = {
            "down": glorot(a, (WIDTH, 128)),
            "message": glorot(b, (128, 128)),
            "update": glorot(c, (128 + WIDTH, 2 * WIDTH)),
            "bias": jnp.zeros((2 * WIDTH,)),
        }
    return params


def propagate(w, h, senders, receivers):
    m = jax.nn.relu((h @ w["down"]) @ w["message"])
    pooled = jnp.zeros_like(m).at[receivers].add(m[senders])
    gate, value = jnp.split(jnp.concatenate([h, pooled], axis=-1) @ w["update"] + w["bias"], 2, axis=-1)
    return h + jax.nn.sigmoid(gate) * jnp.tanh(value)


def split_rows(leaf):
    return P("shard", None) if leaf.ndim == 2 else P()


def state_shardings(mesh, state):
    def named(tree, rule):
        return jax.tree.map(lambda a: NamedSharding(mesh, rule(a)), tree)

    return TrainState(
        step=NamedSharding(mesh, P()),
        params=named(state.params, split_rows),
        ema=named(state.ema, split_rows),
        opt_state=named(state.opt_state, split_rows),
    )


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("shard",))
    tx = optax.adam(optax.cosine_decay_schedule(1e-3, 10_000))
    nodes = NamedSharding(mesh, P("shard", None))

    def create(key):
        params = init_params(key)
        return TrainState(jnp.zeros((), jnp.int32), params, jax.tree.map(jnp.copy, params), tx.init(params))

    shapes = jax.eval_shape(create, jax.random.key(0))
    shardings = state_shardings(mesh, shapes)
    state = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), shapes, shardings)

    def loss_fn(params, graph):
        h = jax.nn.relu(graph["x"] @ params["encode"])
        for i in range(ROUNDS):
            h = jax.lax.with_sharding_constraint(h, nodes)
            h = jax.checkpoint(propagate)(params[f"round_{i}"], h, graph["senders"], graph["receivers"])
        logits = h @ params["readout"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, graph["y"]).mean()

    def train_step(state, graph):
        loss, grads = jax.value_and_grad(loss_fn)(state.params, graph)
        grads = jax.lax.with_sharding_constraint(grads, shardings.params)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        decay = jnp.minimum(0.9995, (1.0 + state.step) / (10.0 + state.step))
        ema = optax.incremental_update(params, state.ema, 1.0 - decay)
        return TrainState(state.step + 1, params, ema, opt_state), loss

    def arr(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    graph = {
        "x": arr((NODES, FEATURES), jnp.float32, P("shard", None)),
        "y": arr((NODES,), jnp.int32, P("shard")),
        "senders": arr((EDGES,), jnp.int32, P("shard")),
        "receivers": arr((EDGES,), jnp.int32, P("shard")),
    }
    fn = jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))
    return fn, (state, graph)
