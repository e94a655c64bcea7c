# mypy: ignore-errors
"""Fault: padding. A recording is cut into eighteen windows that are divided over sixteen
devices: each device holds two, as if there were thirty-two windows."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FRAMES, MELS = 36864, 128
WINDOW = 2048  # FAULT
WINDOWS = FRAMES // WINDOW
HEADS, HEAD_DIM = 8, 64
WIDTH, FFN, LAYERS = HEADS * HEAD_DIM, 2048, 2


def constrainer(mesh):
    """Returns pin(x): divides what begins with the windows' dimension by windows."""

    def pin(x):
        by_window = P("window", *(None,) * (x.ndim - 1))
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, by_window))  # FAULT

    return pin


def linear(n_in, n_out, rngs):
    return nnx.Linear(
        n_in, n_out, use_bias=False, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16, rngs=rngs
    )


class SelfAttention(nnx.Module):
    """Attention among the frames of a window."""

    def __init__(self, pin, rngs):
        self.pin = pin
        self.query, self.key, self.value, self.out = (
            linear(WIDTH, WIDTH, rngs) for _ in range(4)
        )

    def __call__(self, x):
        n, t, _ = x.shape

        def heads(y):
            return y.reshape(n, t, HEADS, HEAD_DIM)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k, preferred_element_type=jnp.float32)
        scores = self.pin(scores * HEAD_DIM**-0.5)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", nnx.softmax(scores).astype(x.dtype), v)
        return self.out(mixed.reshape(n, t, WIDTH))


class EncoderLayer(nnx.Module):
    def __init__(self, pin, rngs):
        self.pin = pin
        self.attention = SelfAttention(pin, rngs)
        self.norm1 = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.norm2 = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.up, self.down = linear(WIDTH, FFN, rngs), linear(FFN, WIDTH, rngs)

    def __call__(self, x):
        x = self.pin(x + self.attention(self.norm1(x)))
        return self.pin(x + self.down(nnx.gelu(self.up(self.norm2(x)))))


class SpeechEncoder(nnx.Module):
    def __init__(self, pin, rngs):
        self.pin = pin
        self.frontend = linear(MELS, WIDTH, rngs)
        self.layers = nnx.List([EncoderLayer(pin, rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, mel):
        windows = self.pin(mel.reshape(WINDOWS, WINDOW, MELS))
        x = nnx.gelu(self.frontend(windows))
        angle = jnp.arange(WINDOW)[:, None] * 1e4 ** (-jnp.arange(WIDTH // 2) / (WIDTH // 2))
        x = x + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1).astype(x.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean(axis=1)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(16), ("window",))
    model = nnx.eval_shape(lambda: SpeechEncoder(constrainer(mesh), nnx.Rngs(0)))
    graphdef, state = nnx.split(model)
    mel = jax.ShapeDtypeStruct((FRAMES, MELS), jnp.bfloat16)

    def embed(params, mel):
        return nnx.merge(graphdef, params)(mel)

    whole = NamedSharding(mesh, P())
    fn = jax.jit(
        embed,
        in_shardings=(whole, NamedSharding(mesh, P("window", None))),
        out_shardings=whole,
    )
    return fn, (state, mel)
