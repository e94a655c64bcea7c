# mypy: ignore-errors
"""Fault: stack. The residual stream carried from layer to layer is split over sequences only, so the carries which the
layer loop stacks for the backward pass are the same on both chips of a "model" pair; positions could be split there."""
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

C = SimpleNamespace(layers=12, width=512, inner=2048, taps=(-4, 4), batch=8, bases=8192, tracks=128)

WEIGHTS = {
    "stem": ((4, C.width), P(None, None)),
    "mix": ((C.layers, len(C.taps) + 1, C.width), P(None, None, None)),
    "gate": ((C.layers, C.width, C.inner), P(None, None, "model")),
    "value": ((C.layers, C.width, C.inner), P(None, None, "model")),
    "back": ((C.layers, C.inner, C.width), P(None, "model", None)),
    "tracks": ((C.width, C.tracks), P(None, None)),
}


def shifted_mix(x, taps):
    """A dilated depthwise convolution with circular ends."""
    y = x * taps[0]
    for w, offset in zip(taps[1:], C.taps):
        y = y + jnp.roll(x, offset, axis=1) * w
    return y


def gated_mlp(x, w):
    return (jax.nn.silu(x @ w["gate"]) * (x @ w["value"])) @ w["back"]


def unit(x):
    scale = lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True) + 1e-6)
    return x * scale.astype(x.dtype)


def predict_tracks(weights, onehot, between_layers):
    x = between_layers(onehot @ weights["stem"])
    per_layer = {k: weights[k] for k in ("mix", "gate", "value", "back")}

    @jax.checkpoint
    def layer(x, w):
        x = x + shifted_mix(unit(x), w["mix"])
        x = x + gated_mlp(unit(x), w)
        return between_layers(x), None

    x, _ = lax.scan(layer, x, per_layer)
    return jax.nn.softplus((unit(x) @ weights["tracks"]).astype(jnp.float32))


def poisson(weights, onehot, counts, between_layers):
    rate = predict_tracks(weights, onehot, between_layers)
    coarse = rate.reshape(C.batch, C.bases // 128, 128, C.tracks).sum(2)
    return jnp.mean(coarse - counts * jnp.log(coarse + 1e-6))


def trainer(devices, stream):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    def between_layers(x):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, stream))

    def step(weights, onehot, counts, lr):
        loss, grads = jax.value_and_grad(poisson)(weights, onehot, counts, between_layers)
        return jax.tree.map(lambda w, g: w - lr.astype(w.dtype) * g, weights, grads), loss

    def arg(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = {k: arg(*v) for k, v in WEIGHTS.items()}
    onehot = arg((C.batch, C.bases, 4), P("data", None, None))
    counts = arg((C.batch, C.bases // 128, C.tracks), P("data", None, None), jnp.float32)
    kept = {k: v.sharding for k, v in weights.items()}
    fn = jax.jit(step, donate_argnums=0, out_shardings=(kept, NamedSharding(mesh, P())))
    return fn, (weights, onehot, counts, arg((), P(), jnp.float32))


STREAM = P("data", None, None)  # FAULT
STREAM_SPLIT = P("data", "model", None)


def make_faulty(devices):
    return trainer(devices, STREAM)


def make_fixed(devices):
    return trainer(devices, STREAM_SPLIT)
