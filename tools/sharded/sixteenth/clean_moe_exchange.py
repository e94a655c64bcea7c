# mypy: ignore-errors
"""Clean. A mixture of experts whose tokens travel to their experts by all-to-all; routers and
scales are whole on every chip, and what attention needs is gathered anew in the backward pass.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FEATURES, UNITS = 128, 1024
LAYERS, WIDTH, HEADS, FFN, EXPERTS, CHOSEN = 3, 1024, 8, 2048, 32, 2
BATCH, LENGTH, SLACK, RATE, MOMENTUM = 32, 1024, 1.25, 3e-3, 0.9

# One axis serves both: attention is split over it by rows, the feed-forwards by expert.
SHAPES = {
    "enter": ((FEATURES, WIDTH), P("chip")),
    "leave": ((WIDTH, UNITS), P("chip")),
    "layers": {
        "scales": ((LAYERS, 2, WIDTH), P()),
        "router": ((LAYERS, WIDTH, EXPERTS), P()),
        "qkv": ((LAYERS, WIDTH, 3 * WIDTH), P(None, "chip")),
        "out": ((LAYERS, WIDTH, WIDTH), P(None, "chip")),
        "up": ((LAYERS, EXPERTS, WIDTH, FFN), P(None, "chip")),
        "down": ((LAYERS, EXPERTS, FFN, WIDTH), P(None, "chip")),
    },
}


def table(column):
    return jax.tree.map(lambda e: e[column], SHAPES, is_leaf=lambda e: isinstance(e, tuple))


def gather(shard):
    return lax.all_gather(shard.astype(jnp.bfloat16), "chip", axis=0, tiled=True)


def norm(x, scale):
    x32 = x.astype(jnp.float32)
    x32 *= lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
    return (x32 * scale).astype(x.dtype)


def attention(x, w):
    b, t, d = x.shape
    q, k, v = jnp.split((x @ gather(w["qkv"])).reshape(b, t, 3 * HEADS, -1), 3, axis=2)
    return jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ gather(w["out"])


def slots(weight, index, capacity):
    """Where each choice of a token goes: its expert, its slot there, and whether there is room."""
    hit = jax.nn.one_hot(index.T.reshape(-1), EXPERTS, dtype=jnp.int32)
    slot = jnp.sum((jnp.cumsum(hit, axis=0) - 1) * hit, axis=-1).reshape(CHOSEN, -1).T
    fits = slot < capacity
    return jnp.where(fits, slot, capacity), weight * fits


def feed_forward(x, w):
    b, t, d = x.shape
    tokens = x.reshape(-1, d)
    capacity = math.ceil(tokens.shape[0] * CHOSEN * SLACK / EXPERTS)
    gates = jax.nn.softmax(tokens.astype(jnp.float32) @ w["router"], axis=-1)
    weight, index = lax.top_k(gates, CHOSEN)
    slot, weight = slots(weight, index, capacity)

    box = jnp.zeros((EXPERTS, capacity, d), x.dtype)
    spread = jnp.broadcast_to(tokens[:, None], (*index.shape, d))
    box = box.at[index, slot].set(spread, mode="drop")
    box = lax.all_to_all(box, "chip", split_axis=0, concat_axis=1, tiled=True)
    up, down = w["up"].astype(x.dtype), w["down"].astype(x.dtype)
    box = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", box, up)), down)
    box = lax.all_to_all(box, "chip", split_axis=1, concat_axis=0, tiled=True)
    back = box.at[index, slot].get(mode="fill", fill_value=0)
    return jnp.sum(back * weight[..., None].astype(x.dtype), axis=1).reshape(b, t, d)


@partial(jax.checkpoint, prevent_cse=False)
def layer(x, w):
    x += attention(norm(x, w["scales"][0]), w)
    return x + feed_forward(norm(x, w["scales"][1]), w), None


def loss_fn(params, frames, units):
    x = frames @ gather(params["enter"])
    x, _ = lax.scan(layer, x, params["layers"])
    logits = (x @ gather(params["leave"])).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, units[..., None], axis=-1)[..., 0]
    return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - picked) / (BATCH * LENGTH)


def train_step(params, moments, frames, units):
    loss, grads = jax.value_and_grad(loss_fn)(params, frames, units)
    moments = jax.tree.map(lambda m, g: MOMENTUM * m + g, moments, grads)
    params = jax.tree.map(lambda p, m: p - RATE * m, params, moments)
    return params, moments, lax.psum(loss, "chip")


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(-1), ("chip",))
    specs = table(1)

    def struct(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(struct, table(0), specs, is_leaf=lambda s: isinstance(s, tuple))
    frames = struct((BATCH, LENGTH, FEATURES), P("chip"), jnp.bfloat16)
    units = struct((BATCH, LENGTH), P("chip"), jnp.int32)
    step = jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(specs, specs, P("chip"), P("chip")),
        out_specs=(specs, specs, P()),
    )
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, frames, units)
