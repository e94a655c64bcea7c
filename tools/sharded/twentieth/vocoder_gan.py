# mypy: ignore-errors
"""Clean. Plain data parallelism: generator and discriminator have one and a half million parameters together and stay
whole on every chip with their Adam states; the audio, which fills the memory, is divided by clips.

Neural vocoder trained adversarially on mel spectra (Equinox). The discriminator's gradients do not reach the
generated audio, whose gradient belongs to the generator's step.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

CLIPS, FRAMES, MELS, HOP = 96, 128, 80, 64
SAMPLES = FRAMES * HOP


class Residual(eqx.Module):
    first: eqx.nn.Conv1d
    second: eqx.nn.Conv1d

    def __init__(self, channels, dilation, key):
        a, b = jax.random.split(key)
        self.first = eqx.nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, key=a)
        self.second = eqx.nn.Conv1d(channels, channels, 1, key=b)

    def __call__(self, x):
        return x + self.second(jax.nn.leaky_relu(self.first(jax.nn.leaky_relu(x, 0.1)), 0.1))


class Generator(eqx.Module):
    enter: eqx.nn.Conv1d
    widen: list
    blocks: list
    leave: eqx.nn.Conv1d

    def __init__(self, key):
        keys = iter(jax.random.split(key, 16))
        self.enter = eqx.nn.Conv1d(MELS, 256, 7, padding=3, key=next(keys))
        widths = [256, 128, 64]
        self.widen = [eqx.nn.Conv1d(a, 8 * b, 3, padding=1, key=next(keys)) for a, b in zip(widths, widths[1:])]
        self.blocks = [[Residual(c, d, next(keys)) for d in (1, 3)] for c in widths[1:]]
        self.leave = eqx.nn.Conv1d(widths[-1], 1, 7, padding=3, key=next(keys))

    def __call__(self, mel):
        x = self.enter(mel)
        for widen, blocks in zip(self.widen, self.blocks):
            y = widen(jax.nn.leaky_relu(x, 0.1))  # eight phases side by side, then interleaved in time
            x = y.reshape(8, -1, y.shape[-1]).transpose(1, 2, 0).reshape(y.shape[0] // 8, -1)
            for block in blocks:
                x = eqx.filter_checkpoint(block)(x)
        return jnp.tanh(self.leave(jax.nn.leaky_relu(x)))[0]


class Discriminator(eqx.Module):
    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.layers = [
            eqx.nn.Conv1d(1, 64, 15, stride=4, padding=7, key=keys[0]),
            eqx.nn.Conv1d(64, 128, 9, stride=4, padding=4, key=keys[1]),
            eqx.nn.Conv1d(128, 128, 9, stride=4, padding=4, key=keys[2]),
            eqx.nn.Conv1d(128, 1, 3, padding=1, key=keys[3]),
        ]

    def __call__(self, audio):
        x, seen = audio[None], []
        for layer in self.layers[:-1]:
            x = jax.nn.leaky_relu(layer(x), 0.1)
            seen.append(x)
        return self.layers[-1](x), seen


def generator_loss(g, d, mel, audio):
    made = jax.vmap(g)(mel)
    verdict, seen = jax.vmap(d)(made)
    _, wanted = jax.vmap(d)(audio)
    matching = sum(jnp.mean(jnp.abs(a - jax.lax.stop_gradient(b))) for a, b in zip(seen, wanted))
    return jnp.mean((verdict - 1) ** 2) + 2.0 * matching + 45.0 * jnp.mean(jnp.abs(made - audio)), made


def discriminator_loss(d, audio, made):
    real, fake = jax.vmap(d)(audio)[0], jax.vmap(d)(made)[0]
    return jnp.mean((real - 1) ** 2) + jnp.mean(fake**2)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("clips",))
    by_clip, whole = NamedSharding(mesh, P("clips")), NamedSharding(mesh, P())
    g, d = (eqx.filter_eval_shape(c, jax.random.key(0)) for c in (Generator, Discriminator))
    g_arrays, g_static = eqx.partition(g, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    d_arrays, d_static = eqx.partition(d, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    tx = optax.adam(2e-4, b1=0.8, b2=0.99)

    def step(g_arrays, d_arrays, states, mel, audio):
        g, d = eqx.combine(g_arrays, g_static), eqx.combine(d_arrays, d_static)
        (g_loss, made), g_grads = eqx.filter_value_and_grad(generator_loss, has_aux=True)(g, d, mel, audio)
        made = jax.lax.stop_gradient(made)
        d_loss, d_grads = eqx.filter_value_and_grad(discriminator_loss)(d, audio, made)
        g_updates, g_state = tx.update(g_grads, states[0])
        d_updates, d_state = tx.update(d_grads, states[1])
        g_arrays = eqx.apply_updates(g_arrays, g_updates)
        return g_arrays, eqx.apply_updates(d_arrays, d_updates), (g_state, d_state), (g_loss, d_loss)

    def place(tree):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), tree)

    states = tuple(jax.eval_shape(tx.init, arrays) for arrays in (g_arrays, d_arrays))
    mel = jax.ShapeDtypeStruct((CLIPS, MELS, FRAMES), jnp.float32, sharding=by_clip)
    audio = jax.ShapeDtypeStruct((CLIPS, SAMPLES), jnp.float32, sharding=by_clip)
    fn = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=whole)
    return fn, (place(g_arrays), place(d_arrays), place(states), mel, audio)
