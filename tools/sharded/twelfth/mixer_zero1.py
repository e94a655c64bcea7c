# mypy: ignore-errors
"""Clean. MLP-Mixer in flax linen, plain data parallel with whole weights, and ZeRO-1: Adam's
moments are divided over the data axis along the last dimension of each parameter."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

PATCHES, PATCH_DIM, WIDTH, CLASSES, DEPTH = 64, 768, 512, 1024, 4
BATCH = 256


class MixerBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        y = nn.Dense(PATCHES)(nn.gelu(nn.Dense(2 * PATCHES)(y)))
        x = x + y.swapaxes(1, 2)
        y = nn.LayerNorm()(x)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(y)))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, patches):
        x = nn.Dense(WIDTH)(patches)
        for _ in range(DEPTH):
            x = nn.remat(MixerBlock)()(x)
        return nn.Dense(CLASSES)(nn.LayerNorm()(x).mean(axis=1))


def zero_one(mesh):
    """Sharding of a leaf of the optimizer state."""
    parts = mesh.shape["data"]

    def place(leaf):
        if leaf.ndim and leaf.shape[-1] % parts == 0:
            return NamedSharding(mesh, P(*(None,) * (leaf.ndim - 1), "data"))
        return NamedSharding(mesh, P())

    return place


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("data",))
    model, tx = Mixer(), optax.adamw(1e-3)
    images = jax.ShapeDtypeStruct((BATCH, PATCHES, PATCH_DIM), jnp.float32)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), images)
    opt_state = jax.eval_shape(tx.init, params)

    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    moments = jax.tree.map(zero_one(mesh), opt_state)
    pieces = jax.tree.map(zero_one(mesh), params)

    def train_step(params, opt_state, images, labels):
        def loss_fn(params):
            logits = model.apply(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        grads = jax.lax.with_sharding_constraint(grads, pieces)
        mine = jax.lax.with_sharding_constraint(params, pieces)
        updates, opt_state = tx.update(grads, opt_state, mine)
        return optax.apply_updates(mine, updates), opt_state, loss

    fn = jax.jit(
        train_step,
        in_shardings=(whole, moments, rows, rows),
        out_shardings=(whole, moments, whole),
        donate_argnums=(0, 1),
    )
    return fn, (params, opt_state, images, labels)
