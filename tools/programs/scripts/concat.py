"""Sliding windows made the wasteful way, by concatenating shifted copies."""

import compiling
import jax
import jax.numpy as jnp

config = compiling.options(__doc__, windows=64, rows=65536)


def windows(x):
    shifted = [jnp.roll(x, -i, axis=0)[:, None, :] for i in range(config.windows)]
    return jnp.concatenate(shifted, axis=1)


def attend(x, w):
    h = windows(x)  # [n, windows, d]
    h = jnp.sin(h)
    scores = jnp.einsum("nwd,d->nw", h, w)
    p = jax.nn.softmax(scores, -1)
    return jnp.einsum("nwd,nw->nd", h, p)


x = jax.ShapeDtypeStruct((config.rows, 100), jnp.float32)
w = jax.ShapeDtypeStruct((100,), jnp.float32)
arguments = compiling.placed((x, w), compiling.single(config.platform))
compiling.compile_and_report(jax.jit(attend).lower(*arguments), "attend")
