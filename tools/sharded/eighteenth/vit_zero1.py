# mypy: ignore-errors
"""Clean. Data-parallel ViT: the weights are whole on every device by choice (ZeRO stage 1), the batch and
the optimizer moments are split over all eight devices.

Supervised image classification with flax nnx; AdamW is written out so that each device updates its
slice of the moments; the new weights are put together afterwards.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "cpu"

IMAGE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 160, 16, 512, 8, 8, 1000
TOKENS = (IMAGE // PATCH) ** 2 + 1
BATCH = 64
HPARAMS = {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "decay": 0.05, "smoothing": 0.1}


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.fc1 = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.fc2 = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.fc2(jax.nn.gelu(self.fc1(x)))


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = (y.reshape(b, t, HEADS, d // HEADS) for y in jnp.split(self.qkv(x), 3, axis=-1))
        return self.proj(jax.nn.dot_product_attention(q, k, v).reshape(b, t, d))


class EncoderBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attn, self.mlp = Attention(rngs), Mlp(rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nnx.Module):
    def __init__(self, rngs):
        self.patch = nnx.Linear(PATCH * PATCH * 3, WIDTH, rngs=rngs)
        self.cls = nnx.Param(jnp.zeros((1, 1, WIDTH)))
        self.pos = nnx.Param(jax.random.normal(rngs.params(), (1, TOKENS, WIDTH)) * 0.02)
        self.blocks = nnx.vmap(EncoderBlock, in_axes=0)(rngs.fork(split=DEPTH))
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, images):
        b, g = images.shape[0], IMAGE // PATCH
        x = images.reshape(b, g, PATCH, g, PATCH, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, g * g, -1)
        x = self.patch(x)
        x = jnp.concatenate([jnp.broadcast_to(self.cls[...], (b, 1, WIDTH)), x], axis=1) + self.pos[...]
        graph, stacked = nnx.split(self.blocks)

        @jax.checkpoint
        def layer(x, state):
            return nnx.merge(graph, state)(x), None

        x, _ = jax.lax.scan(layer, x, stacked)
        return self.head(self.norm(x)[:, 0])


def zero1_spec(shape, parts):
    """First dimension that the devices divide; small leaves and odd ones stay whole."""
    if np.prod(shape) >= 65_536:
        for i, size in enumerate(shape):
            if size % parts == 0:
                return PartitionSpec(*(None,) * i, "dp")
    return PartitionSpec()


def adamw(w, m, v, g, count):
    h = HPARAMS
    m = h["b1"] * m + (1 - h["b1"]) * g
    v = h["b2"] * v + (1 - h["b2"]) * g * g
    mhat, vhat = m / (1 - h["b1"] ** count), v / (1 - h["b2"] ** count)
    decay = h["decay"] if w.ndim > 1 else 0.0
    return w - h["lr"] * (mhat / (jnp.sqrt(vhat) + h["eps"]) + decay * w), m, v


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    whole = NamedSharding(mesh, PartitionSpec())
    rows = NamedSharding(mesh, PartitionSpec("dp"))
    graph, params = nnx.split(nnx.eval_shape(lambda: ViT(nnx.Rngs(0))))
    slices = jax.tree.map(lambda x: NamedSharding(mesh, zero1_spec(x.shape, mesh.size)), params)

    def loss_fn(params, images, labels):
        logits = nnx.merge(graph, params)(images)
        soft = jax.nn.one_hot(labels, CLASSES) * (1 - HPARAMS["smoothing"]) + HPARAMS["smoothing"] / CLASSES
        return -jnp.mean(jnp.sum(soft * jax.nn.log_softmax(logits), axis=-1))

    def train_step(params, moments, count, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        count = count + 1

        def update(w, m, v, g, s):
            g, w = jax.lax.with_sharding_constraint((g, w), s)  # reduce-scatter; my slice of w
            return adamw(w, m, v, g, count)

        done = jax.tree.map(update, params, moments["m"], moments["v"], grads, slices)
        w, m, v = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), done)
        return w, {"m": m, "v": v}, count, loss

    def put(x, s):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)

    weights = jax.tree.map(lambda x: put(x, whole), params)
    moment = jax.tree.map(put, params, slices)
    count = put(jax.ShapeDtypeStruct((), jnp.int32), whole)
    images = put(jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.float32), rows)
    labels = put(jax.ShapeDtypeStruct((BATCH,), jnp.int32), rows)
    step = jax.jit(
        train_step,
        donate_argnums=(0, 1, 2),
        out_shardings=(whole, {"m": slices, "v": slices}, whole, whole),
    )
    return step, (weights, {"m": moment, "v": moment}, count, images, labels)
