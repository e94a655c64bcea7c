# mypy: ignore-errors
"""Clean. Distillation of a small keyword spotter: pure data parallelism over four chips. The student
and the frozen teacher are some tens of MiB, so they stay whole; what is large is the batch.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

SAMPLES, HOP, FRAME, MELS = 16_000, 160, 512, 64
WORDS = 36
BATCH = 1024
TEMPERATURE, MIX, DECAY = 3.0, 0.7, 0.999


def log_mel(audio, bank):
    """Audio (batch, samples) to features (batch, frames, mels)."""
    starts = np.arange(0, SAMPLES - FRAME, HOP)
    frames = audio[:, starts[:, None] + np.arange(FRAME)] * np.hanning(FRAME).astype(np.float32)
    angle = 2 * np.pi * np.outer(np.arange(FRAME), np.arange(FRAME // 2 + 1)) / FRAME
    real = frames @ np.cos(angle).astype(np.float32)
    imag = frames @ np.sin(angle).astype(np.float32)
    return jnp.log((real**2 + imag**2) @ bank + 1e-6)


class Separable(nn.Module):
    """A depthwise convolution in time and frequency, then a pointwise one, with a residual."""

    channels: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        groups = x.shape[-1]
        strides = (self.stride, self.stride)
        y = nn.Conv(groups, (3, 3), strides, feature_group_count=groups, use_bias=False)(x)
        y = nn.GroupNorm(8)(y)
        y = nn.Conv(self.channels, (1, 1))(nn.relu(y))
        return x + y if x.shape == y.shape else y


class Student(nn.Module):
    widths: tuple = (64, 96, 96, 128, 128, 160)

    @nn.compact
    def __call__(self, features):
        x = nn.Conv(self.widths[0], (5, 5), (2, 2))(features[..., None].astype(jnp.bfloat16))
        for i, width in enumerate(self.widths):
            x = nn.remat(Separable)(width, 2 if i % 2 else 1, name=f"block{i}")(x)
        return nn.Dense(WORDS)(jnp.mean(x.astype(jnp.float32), (1, 2)))


class TeacherLayer(nn.Module):
    width: int
    heads: int = 4

    @nn.compact
    def __call__(self, x):
        kinds = dict(dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
        y = nn.LayerNorm(**kinds)(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, **kinds)(y, y)
        y = nn.Dense(4 * self.width, **kinds)(nn.LayerNorm(**kinds)(x))
        return x + nn.Dense(self.width, **kinds)(nn.gelu(y))


class Teacher(nn.Module):
    width: int = 384
    depth: int = 8

    @nn.compact
    def __call__(self, features):
        b, t, m = features.shape
        x = features[:, : t // 2 * 2].reshape(b, t // 2, 2 * m)
        x = nn.Dense(self.width, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)(x)
        for _ in range(self.depth):
            x = TeacherLayer(self.width)(x)
        return nn.Dense(WORDS)(jnp.mean(x.astype(jnp.float32), 1))


class Distillation(train_state.TrainState):
    average: Any = struct.field(default=None)

    def follow(self):
        blend = lambda old, new: DECAY * old + (1 - DECAY) * new
        return self.replace(average=jax.tree.map(blend, self.average, self.params))


def build(teacher):
    def step(state, frozen, bank, audio, words):
        features = jax.lax.stop_gradient(log_mel(audio, bank))
        wise = jax.nn.softmax(teacher.apply(frozen, features) / TEMPERATURE)

        def loss_fn(params):
            logits = state.apply_fn(params, features)
            soft = optax.softmax_cross_entropy(logits / TEMPERATURE, wise) * TEMPERATURE**2
            hard = optax.softmax_cross_entropy_with_integer_labels(logits, words)
            return jnp.mean(MIX * soft + (1 - MIX) * hard), jnp.mean(jnp.argmax(logits, -1) == words)

        (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        state = state.apply_gradients(grads=grads).follow()
        return state, {"loss": loss, "accuracy": accuracy, "norm": optax.global_norm(grads)}

    return step


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("batch",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    student, teacher = Student(), Teacher()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9, nesterov=True))
    sample = jnp.zeros((1, len(range(0, SAMPLES - FRAME, HOP)), MELS))

    def fresh(key):
        params = student.init(key, sample)
        return Distillation.create(apply_fn=student.apply, params=params, tx=tx, average=params)

    put = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), tree)
    state = put(jax.eval_shape(fresh, jax.random.key(0)))
    frozen = put(jax.eval_shape(teacher.init, jax.random.key(1), sample))
    bank = jax.ShapeDtypeStruct((FRAME // 2 + 1, MELS), jnp.float32, sharding=whole)
    audio = jax.ShapeDtypeStruct((BATCH, SAMPLES), jnp.float32, sharding=rows)
    words = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows)
    fn = jax.jit(build(teacher), donate_argnums=0, out_shardings=(whole, whole))
    return fn, (state, frozen, bank, audio, words)
