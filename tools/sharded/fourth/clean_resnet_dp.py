# mypy: ignore-errors
"""Clean. Plain data parallelism for a small residual network: images split over the devices, weights, momentum and
batch statistics replicated, everything donated."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, IMAGE, CLASSES = 256, 32, 100
WIDTHS = (64, 128, 256)


class ConvNorm(eqx.Module):
    kernel: jax.Array
    scale: jax.Array
    shift: jax.Array
    stride: int = eqx.field(static=True)

    def __init__(self, cin, cout, size, stride, key):
        self.kernel = jax.random.normal(key, (size, size, cin, cout)) * (2.0 / (size * size * cin)) ** 0.5
        self.scale = jnp.ones((cout,))
        self.shift = jnp.zeros((cout,))
        self.stride = stride

    def __call__(self, x):
        y = jax.lax.conv_general_dilated(
            x, self.kernel.astype(x.dtype), (self.stride, self.stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        # Group norm over the whole image: no statistics across devices.
        y32 = y.astype(jnp.float32)
        n, h, w, c = y32.shape
        g = y32.reshape(n, h * w, 16, c // 16)
        g = (g - g.mean((1, 3), keepdims=True)) * jax.lax.rsqrt(g.var((1, 3), keepdims=True) + 1e-5)
        return (g.reshape(n, h, w, c) * self.scale + self.shift).astype(x.dtype)


class Residual(eqx.Module):
    conv1: ConvNorm
    conv2: ConvNorm
    skip: ConvNorm

    def __init__(self, cin, cout, stride, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.conv1 = ConvNorm(cin, cout, 3, stride, k1)
        self.conv2 = ConvNorm(cout, cout, 3, 1, k2)
        self.skip = ConvNorm(cin, cout, 1, stride, k3)

    def __call__(self, x):
        return jax.nn.relu(self.skip(x) + self.conv2(jax.nn.relu(self.conv1(x))))


class ResNet(eqx.Module):
    stem: ConvNorm
    stages: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, len(WIDTHS) + 2)
        self.stem = ConvNorm(3, WIDTHS[0], 3, 1, keys[0])
        widths = (WIDTHS[0],) + WIDTHS
        self.stages = [
            Residual(i, o, 1 if n == 0 else 2, keys[n + 1]) for n, (i, o) in enumerate(zip(widths[:-1], widths[1:]))
        ]
        self.head = eqx.nn.Linear(WIDTHS[-1], CLASSES, key=keys[-1])

    def __call__(self, images):
        x = jax.nn.relu(self.stem(images))
        for stage in self.stages:
            x = stage(x)
        return jax.vmap(self.head)(x.mean(axis=(1, 2)).astype(jnp.float32))


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("batch",))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    abstract = eqx.filter_eval_shape(ResNet, jax.random.key(0))
    params, static = eqx.partition(abstract, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    tx = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(0.1, momentum=0.9, nesterov=True))
    opt_state = jax.eval_shape(tx.init, params)

    def loss_fn(params, images, labels):
        images = (images.astype(jnp.bfloat16) - 127.0) / 64.0
        logits = eqx.combine(params, static)(images)
        onehot = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)
        return optax.softmax_cross_entropy(logits, onehot).mean(), jnp.mean(jnp.argmax(logits, -1) == labels)

    def train_step(params, opt_state, images, labels):
        (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, images, labels)
        updates, opt_state = tx.update(grads, opt_state, params)
        return eqx.apply_updates(params, updates), opt_state, {"loss": loss, "accuracy": accuracy}

    step = jax.jit(
        train_step, in_shardings=(rep, rep, rows, rows), out_shardings=(rep, rep, rep), donate_argnums=(0, 1)
    )
    images = jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.uint8)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return step, (params, opt_state, images, labels)
