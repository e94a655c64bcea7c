# mypy: ignore-errors
"""Clean. Data parallel U-Net: the convolutions are whole on every chip (12 MiB, little against the feature
maps), while the Adam moments are split where they divide: each chip updates a part, then all is gathered.

Super-resolution of satellite images in linen; large crops, the levels are rematerialised.
"""

from typing import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, SIZE, BANDS, FACTOR = 16, 128, 8, 2


class Level(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (3, 3), dtype=jnp.bfloat16)(x)
        y = nn.GroupNorm(8, dtype=jnp.bfloat16)(x)
        y = nn.Conv(self.width, (3, 3), dtype=jnp.bfloat16)(nn.silu(y))
        return x + nn.Conv(self.width, (3, 3), dtype=jnp.bfloat16)(nn.silu(y))


class UNet(nn.Module):
    widths: Sequence[int] = (64, 128, 256)

    @nn.compact
    def __call__(self, x):
        b, h, w, _ = x.shape
        coarse, kept = x, []
        x = x.astype(jnp.bfloat16)
        for width in self.widths[:-1]:
            x = nn.remat(Level)(width)(x)
            kept.append(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.remat(Level)(self.widths[-1])(x)
        for width, skip in zip(self.widths[-2::-1], kept[::-1]):
            x = jax.image.resize(x, (*skip.shape[:3], x.shape[-1]), "nearest")
            x = nn.remat(Level)(width)(jnp.concatenate([x, skip], axis=-1))
        x = nn.Conv(BANDS * FACTOR**2, (3, 3), dtype=jnp.float32, kernel_init=nn.initializers.zeros)(x)
        x = x.reshape(b, h, w, FACTOR, FACTOR, BANDS).transpose(0, 1, 3, 2, 4, 5)
        fine = x.reshape(b, h * FACTOR, w * FACTOR, BANDS)
        return fine + jax.image.resize(coarse, fine.shape, "bilinear")


def charbonnier(prediction, target, cloud):
    error = jnp.sqrt((prediction - target) ** 2 + 1e-6)
    clear = 1.0 - cloud[..., None]
    return jnp.sum(error * clear) / (BANDS * jnp.maximum(clear.sum(), 1.0))


def moment_spec(x, chips):
    """The largest dimension which divides; biases and scales are left whole."""
    if x.ndim < 2:
        return P()
    axes = [i for i, n in enumerate(x.shape) if n % chips == 0]
    best = max(axes, key=lambda i: x.shape[i], default=None)
    return P(*("data" if i == best else None for i in range(x.ndim)))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("data",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    model = UNet()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-4))

    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, SIZE, SIZE, BANDS)))
    opt_state = jax.eval_shape(tx.init, params)
    part = jax.tree.map(lambda x: NamedSharding(mesh, moment_spec(x, mesh.size)), params)
    opt_sharding = jax.tree.map(lambda x: NamedSharding(mesh, moment_spec(x, mesh.size)), opt_state)

    def step(params, opt_state, batch):
        def loss_fn(params):
            return charbonnier(model.apply(params, batch["coarse"]), batch["fine"], batch["cloud"])

        loss, grads = jax.value_and_grad(loss_fn)(params)
        grads = jax.lax.with_sharding_constraint(grads, part)
        updates, opt_state = tx.update(grads, opt_state, jax.lax.with_sharding_constraint(params, part))
        return optax.apply_updates(params, updates), opt_state, loss

    def put(x, sharding):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def image(*shape):
        return jax.ShapeDtypeStruct((BATCH, *shape), jnp.float32, sharding=rows)

    fine = FACTOR * SIZE
    batch = {"coarse": image(SIZE, SIZE, BANDS), "fine": image(fine, fine, BANDS), "cloud": image(fine, fine)}
    args = (jax.tree.map(lambda x: put(x, whole), params), jax.tree.map(put, opt_state, opt_sharding), batch)
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(whole, opt_sharding, whole))
    return jitted, args
