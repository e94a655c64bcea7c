# mypy: ignore-errors
"""Clean. Solar irradiance nowcasting from sky images: a convolutional recurrent network in flax linen, plain data
parallelism with whole weights, which are small beside the activations. Frame encodings are rematerialised.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

SITES, FRAMES, SIDE, HORIZON = 32, 8, 128, 12


class Encoder(nn.Module):
    widths: tuple = (32, 64, 128, 256)

    @nn.compact
    def __call__(self, x):
        for width in self.widths:
            x = nn.Conv(width, (3, 3), strides=(2, 2), dtype=jnp.bfloat16)(x)
            x = nn.gelu(nn.LayerNorm(dtype=jnp.bfloat16)(x))
        return x.mean(axis=(1, 2))


class Nowcaster(nn.Module):
    hidden: int = 512

    @nn.compact
    def __call__(self, frames, clear_sky):
        sites, steps = frames.shape[:2]
        encode = nn.remat(Encoder)()
        x = encode(frames.reshape(sites * steps, *frames.shape[2:])).reshape(sites, steps, -1)
        x = jnp.concatenate([x.astype(jnp.float32), clear_sky[:, :steps, None]], axis=-1)
        x = nn.RNN(nn.GRUCell(self.hidden))(x)[:, -1]
        mean, spread = jnp.split(nn.Dense(2 * HORIZON)(x), 2, axis=-1)
        return clear_sky[:, -HORIZON:] * nn.sigmoid(mean), nn.softplus(spread) + 1e-3


def crps(mean, spread, seen):
    """Continuous ranked probability score of a normal forecast."""
    z = (seen - mean) / spread
    density = jnp.exp(-0.5 * z * z) / jnp.sqrt(2 * jnp.pi)
    return spread * (z * (2 * jax.scipy.stats.norm.cdf(z) - 1) + 2 * density - 1 / jnp.sqrt(jnp.pi))


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), ("data",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    model = Nowcaster()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def loss_fn(params, batch):
        mean, spread = model.apply({"params": params}, batch["frames"], batch["clear_sky"])
        return crps(mean, spread, batch["irradiance"]).mean()

    def step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    batch = {
        "frames": jax.ShapeDtypeStruct((SITES, FRAMES, SIDE, SIDE, 3), jnp.bfloat16, sharding=rows),
        "clear_sky": jax.ShapeDtypeStruct((SITES, FRAMES + HORIZON), jnp.float32, sharding=rows),
        "irradiance": jax.ShapeDtypeStruct((SITES, HORIZON), jnp.float32, sharding=rows),
    }
    one = (jnp.zeros((1, FRAMES, SIDE, SIDE, 3)), jnp.zeros((1, FRAMES + HORIZON)))
    params = jax.eval_shape(lambda k: model.init(k, *one)["params"], jax.random.key(0))
    state = jax.eval_shape(tx.init, params)
    params, state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), (params, state)
    )
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=whole), (params, state, batch)
