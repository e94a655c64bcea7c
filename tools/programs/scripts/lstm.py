"""One training step of stacked LSTMs, each a scan over time."""

from functools import partial

import compiling
import jax
import jax.numpy as jnp

config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    dtype="float32",
    batch=64,
    seq=256,
    hidden=256,
    layers=2,
    vocab=2048,
)
H = config.hidden


def cell(w, carry, x):
    h, c = carry
    gates = x @ w["x"] + h @ w["h"] + w["bias"]
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def loss_fn(params, tokens):
    weights = jax.tree.map(lambda w: w.astype(config.dtype), params)
    x = weights["embed"][tokens[:-1]]
    step = jax.checkpoint(cell) if config.remat else cell
    for w in weights["cells"]:
        start = (jnp.zeros((config.batch, H), config.dtype),) * 2
        _, x = jax.lax.scan(partial(step, w), start, x)
    logits = jax.nn.log_softmax((x @ weights["embed"].T).astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logits, tokens[1:, :, None], 2))


def train_step(params, tokens):
    grads = jax.grad(loss_fn)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


sharding = compiling.single(config.platform)
one = {"x": array(H, 4 * H), "h": array(H, 4 * H), "bias": array(4 * H)}
params = {"embed": array(config.vocab, H), "cells": [one] * config.layers}
tokens = array(config.seq + 1, config.batch, dtype=jnp.int32)
step = jax.jit(train_step, donate_argnames=("params",) if config.donate else ())
compiling.compile_and_report(step.lower(params, tokens), "train_step")
