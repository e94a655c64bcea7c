# mypy: ignore-errors
"""Clean. Plain data parallelism: the images are split over the chips, the network of some seven million weights
and its Adam state are whole on each.

Crowd counting: a dilated convolutional network (after CSRNet) predicts a density map at an eighth of the
resolution, trained with a pixel loss and a loss on the counts. Flax linen with a TrainState.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, HEIGHT, WIDTH = 8, 384, 512
FRONT = ((64, 64), (128, 128), (256, 256, 256))
BACK = (512, 512, 256, 128)
COUNT_WEIGHT = 1e-3


class ConvBlock(nn.Module):
    features: int
    dilation: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(
            self.features, (3, 3), kernel_dilation=self.dilation, use_bias=False, dtype=jnp.bfloat16, name="conv"
        )(x)
        x = nn.GroupNorm(num_groups=16, dtype=jnp.bfloat16, name="norm")(x)
        return nn.relu(x)


class DensityNet(nn.Module):
    @nn.compact
    def __call__(self, images):
        block = nn.remat(ConvBlock)
        x = images.astype(jnp.bfloat16) / 127.5 - 1.0
        for stage, widths in enumerate(FRONT):
            for i, width in enumerate(widths):
                x = block(width, name=f"front_{stage}_{i}")(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        for i, width in enumerate(BACK):
            x = block(width, dilation=2, name=f"back_{i}")(x)
        density = nn.Conv(1, (1, 1), dtype=jnp.float32, name="density")(x)
        return nn.softplus(density[..., 0])


def create_state(key):
    model = DensityNet()
    params = model.init(key, jnp.zeros((1, HEIGHT, WIDTH, 3), jnp.uint8))["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 500, 40_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def augment(key, images, density):
    """Mirror half of the images, with their density maps."""
    flip = jax.random.bernoulli(key, 0.5, (images.shape[0],))
    images = jnp.where(flip[:, None, None, None], images[:, :, ::-1], images)
    return images, jnp.where(flip[:, None, None], density[:, :, ::-1], density)


def train_step(state, key, images, density):
    images, density = augment(jax.random.fold_in(key, state.step), images, density)

    def loss_fn(params):
        guess = state.apply_fn({"params": params}, images)
        pixel = jnp.mean(jnp.sum((guess - density) ** 2, (1, 2)))
        counts = guess.sum((1, 2)), density.sum((1, 2))
        absolute = jnp.abs(counts[0] - counts[1])
        return pixel + COUNT_WEIGHT * absolute.mean(), absolute

    (loss, absolute), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    metrics = {"loss": loss, "mae": absolute.mean(), "norm": optax.global_norm(grads)}
    return state.apply_gradients(grads=grads), metrics


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("batch",))
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    place = functools.partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere))
    state = place(jax.eval_shape(create_state, jax.random.key(0)))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=everywhere)
    images = jax.ShapeDtypeStruct((BATCH, HEIGHT, WIDTH, 3), jnp.uint8, sharding=split)
    density = jax.ShapeDtypeStruct((BATCH, HEIGHT // 8, WIDTH // 8), jnp.float32, sharding=split)
    step = jax.jit(train_step, donate_argnames="state", out_shardings=everywhere)
    return step, (state, key, images, density)
