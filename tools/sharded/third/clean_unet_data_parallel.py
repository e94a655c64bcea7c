# mypy: ignore-errors
"""Clean. A small diffusion UNet in linen, pure data parallel: weights of a few MiB on each device, images and everything computed of them split."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class Res(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, emb):
        h = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(8)(x)))
        h = h + nn.Dense(self.width)(nn.silu(emb))[:, None, None]
        h = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(8)(h)))
        return h + (x if x.shape[-1] == self.width else nn.Conv(self.width, (1, 1))(x))


class UNet(nn.Module):
    widths: tuple = (32, 64, 128)

    @nn.compact
    def __call__(self, x, t):
        freq = jnp.exp(-jnp.arange(32) / 4.0)
        emb = nn.Dense(128)(jnp.concatenate([jnp.sin(t[:, None] * freq), jnp.cos(t[:, None] * freq)], -1))
        x = nn.Conv(self.widths[0], (3, 3))(x)
        skips = []
        for w in self.widths:
            x = Res(w)(x, emb)
            skips.append(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        x = Res(self.widths[-1])(x, emb)
        for w in reversed(self.widths):
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            x = Res(w)(jnp.concatenate([x, skips.pop()], -1), emb)
        return nn.Conv(3, (3, 3))(x)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    rep, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    model, tx = UNet(), optax.adamw(1e-4)

    def step(params, opt, images, noise, t):
        def loss(params):
            level = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
            noisy = level * images + jnp.sqrt(1 - level**2) * noise
            return jnp.mean((model.apply(params, noisy, t) - noise) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, value

    images = jax.ShapeDtypeStruct((128, 32, 32, 3), jnp.float32, sharding=split)
    t = jax.ShapeDtypeStruct((128,), jnp.float32, sharding=split)
    params = jax.eval_shape(model.init, jax.random.key(0), images, t)
    place = lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep)
    params, opt = jax.tree.map(place, (params, jax.eval_shape(tx.init, params)))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=rep), (params, opt, images, images, t)
