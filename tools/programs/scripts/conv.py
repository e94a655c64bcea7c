"""One training step of a small ResNet: flax.linen, optax.sgd with momentum."""

import compiling
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

config = compiling.options(__doc__, donate=False, batch=32)


class ResBlock(nn.Module):
    ch: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.ch, (3, 3), (self.stride,) * 2, use_bias=False)(x)
        y = nn.relu(nn.GroupNorm(num_groups=8)(y))
        y = nn.Conv(self.ch, (3, 3), use_bias=False)(y)
        y = nn.GroupNorm(num_groups=8)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.ch, (1, 1), (self.stride,) * 2, use_bias=False)(x)
        return nn.relu(x + y)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(32, (7, 7), (2, 2))(x)
        for ch, stride in ((32, 1), (64, 2), (128, 2), (248, 2)):
            x = ResBlock(ch, stride)(x)
        x = x.mean((1, 2))
        return nn.Dense(1000)(x)


net = Net()
tx = optax.sgd(0.1, momentum=0.9)


def loss_fn(params, images, labels):
    logits = net.apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train_step(params, opt_state, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


sharding = compiling.single(config.platform)
images = jax.ShapeDtypeStruct((config.batch, 224, 224, 3), jnp.float32)
labels = jax.ShapeDtypeStruct((config.batch,), jnp.int32)
params = jax.eval_shape(net.init, jax.random.key(0), images)
opt_state = jax.eval_shape(tx.init, params)
arguments = compiling.placed((params, opt_state, images, labels), sharding)
step = jax.jit(train_step, donate_argnums=(0, 1) if config.donate else ())
compiling.compile_and_report(step.lower(*arguments), "train_step")
