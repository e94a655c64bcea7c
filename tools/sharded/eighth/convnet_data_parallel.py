# mypy: ignore-errors
"""Clean. Plain data parallelism: a small convolutional network is whole on every device and the images are split."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


class Residual(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        y = nn.GroupNorm(8)(nn.Conv(self.features, (3, 3))(x))
        y = nn.GroupNorm(8)(nn.Conv(self.features, (3, 3))(nn.relu(y)))
        return nn.relu(x + y)


class ConvNet(nn.Module):
    widths: tuple = (32, 64)
    classes: int = 100

    @nn.compact
    def __call__(self, images):
        x = images
        for width in self.widths:
            x = nn.Conv(width, (3, 3), strides=(2, 2))(x)
            x = Residual(width)(x)
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("batch",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    model, tx = ConvNet(), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9, nesterov=True))

    def init(key):
        params = model.init(key, jnp.zeros((1, 64, 64, 3)))["params"]
        return {"params": params, "opt": tx.init(params), "step": jnp.zeros((), jnp.int32)}

    state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), jax.eval_shape(init, jax.random.key(0))
    )

    def loss_fn(params, batch):
        logits = model.apply({"params": params}, batch["image"])
        labels = optax.smooth_labels(jax.nn.one_hot(batch["label"], model.classes), 0.1)
        accuracy = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
        return optax.softmax_cross_entropy(logits, labels).mean(), accuracy

    def train_step(state, batch):
        (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(state["params"], batch)
        updates, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        metrics = {"loss": loss, "accuracy": accuracy, "grad_norm": optax.global_norm(grads)}
        return {"params": params, "opt": opt, "step": state["step"] + 1}, metrics

    batch = {
        "image": jax.ShapeDtypeStruct((512, 64, 64, 3), jnp.float32, sharding=split),
        "label": jax.ShapeDtypeStruct((512,), jnp.int32, sharding=split),
    }
    return jax.jit(train_step, donate_argnums=0, out_shardings=(whole, whole)), (state, batch)
