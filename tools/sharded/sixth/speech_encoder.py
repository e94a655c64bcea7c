# mypy: ignore-errors
"""Fault: stack. The carry of the scan over encoder layers is split over the batch only, so the saved layer inputs, stacked over all
layers, are whole along the model axis; sequence-parallel residuals would take half the memory."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, HEADS, FF, LAYERS, MELS, CLASSES = 512, 8, 1024, 24, 80, 512
BATCH, FRAMES = 16, 2048


class FeedForward(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(DIM, FF, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.down = nnx.Linear(FF, DIM, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.silu(self.up(x)))


class EncoderLayer(nnx.Module):
    """Linear attention and a feed-forward; long utterances leave no room for scores."""

    def __init__(self, rngs):
        self.norms = nnx.List([nnx.LayerNorm(DIM, dtype=jnp.bfloat16, rngs=rngs) for _ in range(2)])
        self.ff = FeedForward(rngs)
        self.qkv = nnx.Linear(DIM, 3 * DIM, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.out = nnx.Linear(DIM, DIM, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)

    def attention(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split(self.qkv(x).reshape(b, t, HEADS, -1), 3, axis=-1)
        q, k = nnx.elu(q) + 1, nnx.elu(k) + 1
        kv = jnp.einsum("bthd,bthe->bhde", k, v) / t
        z = jnp.einsum("bthd,bhd->bth", q, k.mean(1)) + 1e-3
        o = jnp.einsum("bthd,bhde->bthe", q, kv) / z[..., None]
        return self.out(o.reshape(b, t, d))

    def __call__(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.ff(self.norms[1](x))


def layer_state():
    @functools.partial(nnx.vmap, in_axes=0, out_axes=0)
    def make(key):
        return EncoderLayer(nnx.Rngs(key))

    return nnx.split(nnx.eval_shape(lambda: make(jax.random.split(jax.random.key(0), LAYERS))))


def weight_spec(path, leaf):
    name = jax.tree_util.keystr(path)
    if "down" in name or "'out'" in name:
        return P(None, "model", None)
    if leaf.ndim == 3 and ("up" in name or "qkv" in name):
        return P(None, None, "model")
    return P()


def build(devices, carry_spec):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    graph, layers = layer_state()

    def struct(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {
        "front": struct((MELS, DIM), jnp.float32, P()),
        "ctc": struct((DIM, CLASSES), jnp.float32, P(None, "model")),
        "layers": jax.tree_util.tree_map_with_path(lambda p, a: struct(a.shape, a.dtype, weight_spec(p, a)), layers),
    }

    def encode(params, mel):
        x = mel @ params["front"].astype(jnp.bfloat16)

        @jax.checkpoint
        def body(x, w):
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, carry_spec))
            return nnx.merge(graph, w)(x), None

        x, _ = jax.lax.scan(body, x, params["layers"])
        return x

    def loss_fn(params, batch):
        x = encode(params, batch["mel"])
        logits = (x @ params["ctc"].astype(x.dtype)).astype(jnp.float32)
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data", None, "model")))
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["frame_label"]).mean()

    def step(params, batch):
        loss, g = jax.value_and_grad(loss_fn)(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, g), loss

    batch = {"mel": struct((BATCH, FRAMES, MELS), jnp.bfloat16, P("data")),
             "frame_label": struct((BATCH, FRAMES), jnp.int32, P("data"))}
    out = (jax.tree.map(lambda a: a.sharding, params), NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=0, out_shardings=out), (params, batch)


def make_faulty(devices):
    return build(devices, carry_spec=P("data", None, None))  # FAULT


def make_fixed(devices):
    return build(devices, carry_spec=P("data", "model", None))
