# mypy: ignore-errors
"""Generative models with flax.nnx, on the CPU."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

TARGETS = ("cpu",)


class Vae(nnx.Module):
    def __init__(self, width, latent, rngs):
        self.conv1 = nnx.Conv(3, width, (4, 4), strides=2, rngs=rngs)
        self.conv2 = nnx.Conv(width, 2 * width, (4, 4), strides=2, rngs=rngs)
        self.moments = nnx.Linear(2 * width * 16 * 16, 2 * latent, rngs=rngs)
        self.expand = nnx.Linear(latent, 2 * width * 16 * 16, rngs=rngs)
        self.up1 = nnx.ConvTranspose(2 * width, width, (4, 4), strides=2, rngs=rngs)
        self.up2 = nnx.ConvTranspose(width, 3, (4, 4), strides=2, rngs=rngs)
        self.width = width

    def __call__(self, x, noise):
        h = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
        mean, log_std = jnp.split(self.moments(h.reshape(x.shape[0], -1)), 2, -1)
        z = mean + jnp.exp(log_std) * noise
        h = nnx.relu(self.expand(z)).reshape(-1, 16, 16, 2 * self.width)
        return self.up2(nnx.relu(self.up1(h))), mean, log_std


def make_vae(batch=128, width=64, latent=128):
    def create():
        model = Vae(width, latent, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(create))

    @jax.jit
    def train_step(state, images, key):
        model, optimizer = nnx.merge(graph, state)

        def loss_fn(model):
            noise = jax.random.normal(key, (images.shape[0], latent))
            out, mean, log_std = model(images, noise)
            kl = 0.5 * (jnp.exp(2 * log_std) + mean**2 - 1 - 2 * log_std).sum(-1)
            return (((out - images) ** 2).sum((1, 2, 3)) + kl).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    images = jax.ShapeDtypeStruct((batch, 64, 64, 3), jnp.float32)
    return train_step, (state, images, jax.eval_shape(lambda: jax.random.key(0)))


class ResBlock(nnx.Module):
    def __init__(self, features, rngs):
        self.norm1 = nnx.GroupNorm(features, num_groups=8, rngs=rngs)
        self.conv1 = nnx.Conv(features, features, (3, 3), rngs=rngs)
        self.time = nnx.Linear(128, features, rngs=rngs)
        self.norm2 = nnx.GroupNorm(features, num_groups=8, rngs=rngs)
        self.conv2 = nnx.Conv(features, features, (3, 3), rngs=rngs)

    def __call__(self, x, t):
        h = self.conv1(nnx.silu(self.norm1(x))) + self.time(t)[:, None, None]
        return x + self.conv2(nnx.silu(self.norm2(h)))


class Denoiser(nnx.Module):
    def __init__(self, features, depth, rngs):
        self.first = nnx.Conv(3, features, (3, 3), rngs=rngs)
        self.blocks = nnx.List([ResBlock(features, rngs) for _ in range(depth)])
        self.last = nnx.Conv(features, 3, (3, 3), rngs=rngs)

    def __call__(self, x, t):
        frequencies = jnp.exp(-jnp.arange(64) / 8)
        t = t[:, None] * frequencies
        t = jnp.concatenate([jnp.sin(t), jnp.cos(t)], -1)
        x = self.first(x)
        for block in self.blocks:
            x = block(x, t)
        return self.last(nnx.silu(x))


def make_diffusion(batch=32, size=32, features=128, depth=8):
    """Predicts the noise; keeps an average of the weights."""

    def create():
        model = Denoiser(features, depth, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(2e-4), wrt=nnx.Param)

    model, optimizer = nnx.eval_shape(create)
    average = nnx.state(model, nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def train_step(state, average, images, key):
        model, optimizer = nnx.merge(graph, state)
        k1, k2 = jax.random.split(key)
        t = jax.random.uniform(k1, (batch,))
        noise = jax.random.normal(k2, images.shape)
        a = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
        noisy = a * images + jnp.sqrt(1 - a**2) * noise
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(noisy, t) - noise) ** 2))(model)
        optimizer.update(model, grads)
        new = nnx.state(model, nnx.Param)
        average = jax.tree.map(lambda a, p: 0.999 * a + 0.001 * p, average, new)
        return nnx.state((model, optimizer)), average, loss

    images = jax.ShapeDtypeStruct((batch, size, size, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.jit(train_step, donate_argnums=(0, 1)), (state, average, images, key)


class Layer(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


def make_flow(batch=8192, width=256, depth=12):
    """Flow matching on vectors, layers stacked by vmap and scanned."""

    @nnx.vmap(in_axes=0, out_axes=0)
    def stack(rngs):
        return Layer(width, rngs)

    def create():
        return stack(nnx.Rngs(0).fork(split=depth))

    graph, state = nnx.split(nnx.eval_shape(create))

    @jax.jit
    def train_step(state, x1, x0, t):
        def velocity(state, x):
            @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
            def forward(layer, x):
                return layer(x)

            return forward(nnx.merge(graph, state), x)

        def loss_fn(state):
            xt = t[:, None] * x1 + (1 - t[:, None]) * x0
            return jnp.mean((velocity(state, xt) - (x1 - x0)) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(state)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, state, grads), loss

    x = jax.ShapeDtypeStruct((batch, width), jnp.float32)
    return train_step, (state, x, x, jax.ShapeDtypeStruct((batch,), jnp.float32))
