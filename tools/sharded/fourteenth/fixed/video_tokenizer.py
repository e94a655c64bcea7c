# mypy: ignore-errors
"""Fixed."""
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

FRAMES = 1 + 8  # the first frame is coded alone, as an image
PATCHES = 48 * 64
PATCH_DIM = 8 * 8 * 3
WIDTH = 256
LATENT = 32
BLOCKS = 4


class Residual(nnx.Module):
    """Per patch: normalization, then a gated two-layer perceptron."""

    def __init__(self, width, *, rngs):
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.gate = nnx.Linear(width, 2 * width, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, use_bias=False, rngs=rngs)

    def __call__(self, x):
        h = self.norm(x)
        return x + self.down(nnx.silu(self.gate(h)) * self.up(h))


class Motion(nnx.Module):
    """Mixes the latents of a patch over the frames, causally."""

    def __init__(self, frames, *, rngs):
        self.weight = nnx.Param(0.02 * jax.random.normal(rngs.params(), (frames, frames)))

    def __call__(self, z):
        return z + jnp.einsum("ts,spc->tpc", jnp.tril(self.weight[...]), z)


class VideoTokenizer(nnx.Module):
    def __init__(self, constrain, *, rngs):
        self.constrain = constrain
        self.stem = nnx.Linear(PATCH_DIM, WIDTH, rngs=rngs)
        self.encoder = nnx.List([Residual(WIDTH, rngs=rngs) for _ in range(BLOCKS)])
        self.moments = nnx.Linear(WIDTH, 2 * LATENT, rngs=rngs)
        self.motion = Motion(FRAMES, rngs=rngs)
        self.unlatent = nnx.Linear(LATENT, WIDTH, rngs=rngs)
        self.decoder = nnx.List([Residual(WIDTH, rngs=rngs) for _ in range(BLOCKS)])
        self.rgb = nnx.Linear(WIDTH, PATCH_DIM, rngs=rngs)

    def __call__(self, clip, noise):  # frame, patch, feature
        x = self.constrain(self.stem(clip))
        for block in self.encoder:
            x = self.constrain(block(x))
        mean, logvar = jnp.split(self.moments(x), 2, -1)
        z = self.motion(mean + jnp.exp(0.5 * logvar) * noise)
        x = self.constrain(self.unlatent(z))
        for block in self.decoder:
            x = self.constrain(block(x))
        kl = 0.5 * jnp.mean(mean**2 + jnp.exp(logvar) - 1 - logvar)
        return self.rgb(x), kl


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("devs",))
    by_patch = NamedSharding(mesh, P(None, "devs"))
    activations = NamedSharding(mesh, P(None, "devs"))
    constrain = lambda x: jax.lax.with_sharding_constraint(x, activations)
    graphdef, params = nnx.split(nnx.eval_shape(lambda: VideoTokenizer(constrain, rngs=nnx.Rngs(0))))
    tx = optax.adamw(1e-4)

    def place(s):  # matrices by output feature
        spec = P(None, "devs") if len(s.shape) == 2 and s.shape[-1] % 8 == 0 else P()
        return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(place, params)
    opt = jax.tree.map(place, jax.eval_shape(tx.init, params))

    def step(params, opt, clip, noise):
        target = clip.astype(jnp.float32) / 127.5 - 1

        def loss_fn(params):
            out, kl = nnx.merge(graphdef, params)(target, noise)
            return jnp.mean(jnp.abs(out - target)) + 1e-6 * kl

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    clip = jax.ShapeDtypeStruct((FRAMES, PATCHES, PATCH_DIM), jnp.uint8, sharding=by_patch)
    noise = jax.ShapeDtypeStruct((FRAMES, PATCHES, LATENT), jnp.float32, sharding=by_patch)
    out = jax.tree.map(lambda s: s.sharding, (params, opt))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, None)), (params, opt, clip, noise)
