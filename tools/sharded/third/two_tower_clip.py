# mypy: ignore-errors
"""Fault: replicated. A CLIP-like two tower model gathers both sides of the batch before the similarity, so each device computes the whole matrix of logits."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
N = 4096


class Tower(nn.Module):
    width: int
    depth: int = 2

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width, use_bias=False)(x)
        for _ in range(self.depth):
            h = nn.LayerNorm()(x)
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(h)))
        x = nn.Dense(256, use_bias=False, name="head")(x)
        return x / (1e-6 + jnp.linalg.norm(x, axis=-1, keepdims=True))


IMAGE, TEXT = Tower(384), Tower(256)


def everywhere(x, mesh):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))


def rows(x, mesh):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("dp")))


def info_nce(queries, keys, log_scale):
    logits = jnp.exp(log_scale) * (queries @ keys.T)  # FAULT
    hit = jnp.diagonal(logits)
    by_row = jax.nn.logsumexp(logits, axis=1)
    by_column = jax.nn.logsumexp(logits, axis=0)
    return 0.5 * jnp.mean(by_row + by_column - 2 * hit)


def build(devices, place_queries):
    mesh = Mesh(np.array(devices), ("dp",))
    rep, batch = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))

    def loss(params, images, texts):
        a = IMAGE.apply(params["image"], images)
        b = TEXT.apply(params["text"], texts)
        return info_nce(place_queries(a, mesh), everywhere(b, mesh), params["log_scale"])  # FAULT

    def step(params, images, texts):
        value, grads = jax.value_and_grad(loss)(params, images, texts)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    images = jax.ShapeDtypeStruct((N, 768), jnp.float32, sharding=batch)
    texts = jax.ShapeDtypeStruct((N, 512), jnp.float32, sharding=batch)
    shapes = {
        "image": jax.eval_shape(IMAGE.init, jax.random.key(0), images),
        "text": jax.eval_shape(TEXT.init, jax.random.key(1), texts),
        "log_scale": jax.ShapeDtypeStruct((), jnp.float32),
    }
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep), shapes)
    return jax.jit(step, donate_argnums=0), (params, images, texts)


def make_faulty(devices):
    return build(devices, everywhere)  # FAULT


def make_fixed(devices):
    return build(devices, rows)
