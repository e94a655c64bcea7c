"""One training step of a small vision transformer: flax.linen, optax.adam."""

import compiling
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    dtype="float32",
    batch=32,
    size=128,
    patch=8,
    layers=3,
    d=256,
    heads=4,
)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm(dtype=config.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(config.heads, dtype=config.dtype)(h)
        h = nn.LayerNorm(dtype=config.dtype)(x)
        h = nn.gelu(nn.Dense(4 * config.d, dtype=config.dtype)(h))
        return x + nn.Dense(config.d, dtype=config.dtype)(h)


class ViT(nn.Module):
    @nn.compact
    def __call__(self, images):
        patch = (config.patch,) * 2
        x = nn.Conv(config.d, patch, patch, dtype=config.dtype)(images)
        x = x.reshape(x.shape[0], -1, config.d)
        block = nn.remat(Block) if config.remat else Block
        for i in range(config.layers):
            x = block(name=f"block_{i}")(x)
        return nn.Dense(1000)(x.mean(1))


model = ViT()
tx = optax.adam(1e-3)


def loss_fn(params, images, labels):
    logits = model.apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train_step(params, opt_state, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


images = jax.ShapeDtypeStruct((config.batch, config.size, config.size, 3), jnp.float32)
labels = jax.ShapeDtypeStruct((config.batch,), jnp.int32)
params = jax.eval_shape(model.init, jax.random.key(0), images)
opt_state = jax.eval_shape(tx.init, params)
sharding = compiling.single(config.platform)
arguments = compiling.placed((params, opt_state, images, labels), sharding)
step = jax.jit(train_step, donate_argnames=("params", "opt_state") if config.donate else ())
compiling.compile_and_report(step.lower(*arguments), "train_step")
