# mypy: ignore-errors
"""Clean. Both images and the masks are split over the batch.

Satellite change detection, validation pass: a siamese convolutional encoder in flax linen, data parallel with whole
weights.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

TILES, SIDE, BANDS = 64, 256, 12

BATCH_SPECS = {
    "before": P("data"),
    "after": P("data"),
    "changed": P("data"),
    "cloud": P("data"),
}


class Down(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.features, (3, 3), strides=(2, 2), use_bias=False, dtype=jnp.bfloat16)(x)
        x = nn.gelu(nn.GroupNorm(8, dtype=jnp.bfloat16)(x))
        y = nn.Conv(self.features, (3, 3), use_bias=False, dtype=jnp.bfloat16)(x)
        return x + nn.gelu(nn.GroupNorm(8, dtype=jnp.bfloat16)(y))


class Siamese(nn.Module):
    widths: tuple = (32, 64, 128, 256)

    def setup(self):
        self.downs = [Down(w) for w in self.widths]
        self.ups = [nn.ConvTranspose(w, (2, 2), (2, 2), dtype=jnp.bfloat16) for w in reversed((16, *self.widths[:-1]))]
        self.last = nn.Conv(1, (1, 1))

    def encode(self, x):
        levels = []
        for down in self.downs:
            x = down(x)
            levels.append(x)
        return levels

    def __call__(self, before, after):
        pairs = list(zip(self.encode(before), self.encode(after), strict=True))
        x = jnp.zeros((), jnp.bfloat16)
        for up, (a, b) in zip(self.ups, reversed(pairs), strict=True):
            x = nn.gelu(up(x + jnp.abs(a - b)))
        return self.last(x)[..., 0].astype(jnp.float32)


def batch_shapes():
    image = ((TILES, SIDE, SIDE, BANDS), jnp.float32)
    mask = ((TILES, SIDE, SIDE), jnp.float32)
    return {"before": image, "after": image, "changed": mask, "cloud": mask}


def place_batch(mesh):
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, BATCH_SPECS.get(name, P())))
        for name, (shape, dtype) in batch_shapes().items()
    }


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), ("data",))
    whole = NamedSharding(mesh, P())
    model = Siamese()

    def detect(params, batch):
        logits = model.apply({"params": params}, batch["before"], batch["after"])
        clear = 1.0 - batch["cloud"]
        chance = nn.sigmoid(logits) * clear
        known = batch["changed"] * clear
        overlap = jnp.sum(jnp.minimum(chance, known))
        union = jnp.sum(jnp.maximum(chance, known))
        return chance.astype(jnp.bfloat16), overlap / jnp.maximum(union, 1.0)

    one = jnp.zeros((1, SIDE, SIDE, BANDS))
    params = jax.eval_shape(lambda k: model.init(k, one, one)["params"], jax.random.key(0))
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), params)
    out = (NamedSharding(mesh, P("data")), whole)
    return jax.jit(detect, out_shardings=out), (params, place_batch(mesh))
