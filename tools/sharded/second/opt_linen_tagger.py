# mypy: ignore-errors
"""Fault: optimizer. A linen tagger with its parameters split over eight devices; Adam's two moments were initialised without shardings, so each device holds all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class Tagger(nn.Module):
    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(16384, 512)(ids)
        for _ in range(4):
            h = nn.LayerNorm()(x)
            x = x + nn.Dense(512)(nn.gelu(nn.Dense(2048)(h)))
        return nn.Dense(64)(x)


def rule(mesh, leaf):
    """Split the first dimension that eight divides."""
    for i, n in enumerate(leaf.shape):
        if n % 8 == 0 and leaf.size > 4096:
            return NamedSharding(mesh, P(*[None] * i, "fsdp"))
    return NamedSharding(mesh, P())


def place(tree, sharding_of):
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding_of(s)), tree)


def build(devices, shard_moments):
    mesh = Mesh(np.array(devices), ("fsdp",))
    model, tx = Tagger(), optax.adamw(1e-3)
    ids = jax.ShapeDtypeStruct((32, 128), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    params = place(jax.eval_shape(model.init, jax.random.key(0), ids), lambda s: rule(mesh, s))
    moments = jax.eval_shape(tx.init, params)
    if shard_moments:
        moments = place(moments, lambda s: rule(mesh, s))
    else:
        moments = place(moments, lambda s: NamedSharding(mesh, P()))  # FAULT

    def train(params, moments, ids, tags):
        def loss(p):
            return optax.softmax_cross_entropy_with_integer_labels(model.apply(p, ids), tags).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, moments = tx.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, value

    keep = lambda t: jax.tree.map(lambda s: s.sharding, t)
    jitted = jax.jit(train, donate_argnums=(0, 1), out_shardings=(keep(params), keep(moments), NamedSharding(mesh, P())))
    return jitted, (params, moments, ids, ids)


def make_faulty(devices):
    return build(devices, shard_moments=False)


def make_fixed(devices):
    return build(devices, shard_moments=True)
