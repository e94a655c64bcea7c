# mypy: ignore-errors
"""Clean. Fully sharded weights in a shard_map over both mesh axes: each layer is gathered whole, but within
jax.checkpoint, so nothing gathered outlives its layer; the gradients leave as scattered sums.

Sign language to gloss captions: a temporal encoder over pose key points with a CTC-like frame classifier.
Four microbatches are accumulated into sharded gradients, the norms' scales stay whole.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ALL = ("host", "chip")
KEYPOINTS, DIM, HIDDEN, HEADS, LAYERS, GLOSSES = 384, 1024, 4096, 8, 10, 4096
MICRO, BATCH, FRAMES = 4, 64, 512

MATRICES = {
    "attention_in": (LAYERS, DIM, 3 * DIM),
    "attention_out": (LAYERS, DIM, DIM),
    "ffn_in": (LAYERS, DIM, HIDDEN),
    "ffn_out": (LAYERS, HIDDEN, DIM),
}


def parameter_table():
    """name -> (shape, spec); the stacked matrices are split by their rows."""
    table = {name: (shape, P(None, ALL)) for name, shape in MATRICES.items()}
    table |= {"scale": ((LAYERS, 2, DIM), P()), "poses": ((KEYPOINTS, DIM), P(ALL)), "gloss": ((DIM, GLOSSES), P(ALL))}
    return table


def whole(piece):
    return jax.lax.all_gather(piece.astype(jnp.bfloat16), ALL, axis=0, tiled=True)


def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


@jax.checkpoint
def layer(x, w):
    b, t, d = x.shape
    q, k, v = jnp.split((norm(x, w["scale"][0]) @ whole(w["attention_in"])).reshape(b, t, HEADS, -1), 3, -1)
    x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ whole(w["attention_out"])
    return x + jax.nn.gelu(norm(x, w["scale"][1]) @ whole(w["ffn_in"])) @ whole(w["ffn_out"]), None


@jax.checkpoint
def classify(piece, x, labels):
    logits = (x @ whole(piece)).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


@jax.checkpoint
def lift(piece, poses):
    return poses.astype(jnp.bfloat16) @ whole(piece)


def loss_fn(params, poses, labels):
    x = lift(params["poses"], poses)
    layers = {name: params[name] for name in (*MATRICES, "scale")}
    x, _ = jax.lax.scan(layer, x, layers)
    return jax.lax.pmean(classify(params["gloss"], x, labels), ALL)


def train_step(params, momentum, poses, labels):
    """poses (micro, batch of this chip, frames, key points)."""

    def micro(grads, batch):
        loss, fresh = jax.value_and_grad(loss_fn)(params, *batch)
        return jax.tree.map(jnp.add, grads, fresh), loss

    grads, losses = jax.lax.scan(micro, jax.tree.map(jnp.zeros_like, params), (poses, labels))
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g / MICRO, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
    return params, momentum, losses.mean()


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("host", "chip"))
    table = parameter_table()
    specs = {name: spec for name, (_, spec) in table.items()}
    rows = P(None, ALL)
    mapped = jax.shard_map(
        train_step, mesh=mesh, in_specs=(specs, specs, rows, rows), out_specs=(specs, specs, P())
    )

    def struct(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {name: struct(*entry) for name, entry in table.items()}
    poses = struct((MICRO, BATCH, FRAMES, KEYPOINTS), rows)
    labels = struct((MICRO, BATCH, FRAMES), rows, jnp.int32)
    return jax.jit(mapped, donate_argnums=(0, 1)), (params, params, poses, labels)
