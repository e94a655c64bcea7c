# mypy: ignore-errors
"""Fault: gathered. The weights of a layer are gathered outside the rematerialised function, so they
are among what it keeps for the backward: the scan stacks the whole weights of every layer.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

EVENTS, WIDTH, HEADS, LAYERS, HIDDEN = 1024, 1024, 16, 12, 4096
BATCH, LENGTH = 32, 1024
AXIS = "fsdp"


class Layer(NamedTuple):
    """Stacked over the layers; in a scan each field loses its first dimension."""

    qkv: jax.Array
    out: jax.Array
    up: jax.Array
    down: jax.Array
    scales: jax.Array


class Composer(NamedTuple):
    events: jax.Array
    layers: Layer
    scale: jax.Array


SPECS = Composer(
    events=P(AXIS, None),
    layers=Layer(
        qkv=P(None, AXIS, None),
        out=P(None, AXIS, None),
        up=P(None, AXIS, None),
        down=P(None, AXIS, None),
        scales=P(None, None, None),
    ),
    scale=P(None),
)


def init(key):
    k = iter(jax.random.split(key, 5))
    normal = lambda *shape: 0.02 * jax.random.normal(next(k), shape)
    layers = Layer(
        qkv=normal(LAYERS, WIDTH, 3 * WIDTH),
        out=normal(LAYERS, WIDTH, WIDTH),
        up=normal(LAYERS, WIDTH, HIDDEN),
        down=normal(LAYERS, HIDDEN, WIDTH),
        scales=jnp.ones((LAYERS, 2, WIDTH)),
    )
    return Composer(normal(EVENTS, WIDTH), layers, jnp.ones((WIDTH,)))


def gather(w):
    return lax.all_gather(w.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)


def materialise(layer):
    return Layer(*(gather(w) for w in layer[:-1]), scales=layer.scales)


def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y**2, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def attend(x, layer):
    b, t, d = x.shape
    q, k, v = jnp.split((x @ layer.qkv).reshape(b, t, HEADS, -1), 3, axis=-1)
    slopes = 2.0 ** (-8.0 * jnp.arange(1, HEADS + 1) / HEADS)
    distance = jnp.arange(t)[:, None] - jnp.arange(t)
    bias = jnp.where(distance >= 0, -slopes[:, None, None] * distance, -1e9)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // HEADS) ** -0.5
    probs = jax.nn.softmax(scores + bias, -1).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(b, t, d) @ layer.out


def compute(x, layer):
    x = x + attend(norm(x, layer.scales[0]), layer)
    return x + jax.nn.gelu(norm(x, layer.scales[1]) @ layer.up) @ layer.down


def apply_layer(x, layer):
    return jax.checkpoint(compute)(x, materialise(layer)), None  # FAULT


def loss_fn(params, tokens):
    events = gather(params.events)
    x = events[tokens[:, :-1]]
    x, _ = lax.scan(apply_layer, x, params.layers)
    logits = (norm(x, params.scale) @ events.T).astype(jnp.float32)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return lax.pmean(jnp.mean(nll), AXIS)


def train_step(params, state, tokens, *, mesh, tx):
    local = jax.shard_map(
        jax.value_and_grad(loss_fn), mesh=mesh, in_specs=(SPECS, P(AXIS, None)), out_specs=(P(), SPECS)
    )
    loss, grads = local(params, tokens)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(16), (AXIS,))
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-4, 500, 50_000), b2=0.95)

    def on(spec, a):
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))

    shapes = jax.eval_shape(init, jax.random.key(0))
    params = jax.tree.map(on, SPECS, shapes, is_leaf=lambda s: isinstance(s, P))
    state = optax.tree_map_params(
        tx, lambda a, p: on(p.sharding.spec, a), jax.eval_shape(tx.init, shapes), params,
        transform_non_params=partial(on, P()),
    )
    tokens = on(P(AXIS, None), jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32))
    outs = jax.tree.map(lambda a: a.sharding, (params, state))
    fn = jax.jit(
        partial(train_step, mesh=mesh, tx=tx),
        donate_argnums=(0, 1),
        out_shardings=(*outs, NamedSharding(mesh, P())),
    )
    return fn, (params, state, tokens)
