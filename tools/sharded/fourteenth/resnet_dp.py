# mypy: ignore-errors
"""Clean. ResNet in plain data parallelism: small whole weights and momentum, statistics of the batch over all devices."""
from typing import Any
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class TrainState(train_state.TrainState):
    batch_stats: Any


class Bottleneck(nn.Module):
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        bn = lambda name, **kw: nn.BatchNorm(use_running_average=not train, momentum=0.9, name=name, **kw)
        y = nn.relu(bn("bn1")(nn.Conv(self.width, (1, 1), use_bias=False)(x)))
        y = nn.relu(bn("bn2")(nn.Conv(self.width, (3, 3), self.stride, use_bias=False)(y)))
        y = bn("bn3", scale_init=nn.initializers.zeros)(nn.Conv(4 * self.width, (1, 1), use_bias=False)(y))
        if x.shape != y.shape:
            x = bn("bn_skip")(nn.Conv(4 * self.width, (1, 1), self.stride, use_bias=False, name="skip")(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple = (2, 2, 2)
    classes: int = 1000

    @nn.compact
    def __call__(self, x, train=True):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(64, (7, 7), 2, use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for i, depth in enumerate(self.stages):
            for j in range(depth):
                x = Bottleneck(64 * 2**i, stride=2 if i and not j else 1)(x, train)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def augment(rng, images):
    """Random flips, per image."""
    flip = jax.random.bernoulli(rng, shape=(images.shape[0], 1, 1, 1))
    images = jnp.where(flip, images[:, :, ::-1], images).astype(jnp.float32) / 255
    return (images - jnp.array([0.485, 0.456, 0.406])) / jnp.array([0.229, 0.224, 0.225])


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    replicated = NamedSharding(mesh, P())
    batched = NamedSharding(mesh, P("data"))
    model = ResNet()
    tx = optax.sgd(optax.cosine_decay_schedule(0.4, 50_000), momentum=0.9, nesterov=True)

    def init(rng):
        variables = model.init(rng, jnp.zeros((1, 128, 128, 3)), train=False)
        return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx, batch_stats=variables["batch_stats"])

    def train_step(state, batch, rng):
        images = jax.lax.with_sharding_constraint(augment(rng, batch["image"]), batched)

        def loss_fn(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, new = state.apply_fn(variables, images, mutable=["batch_stats"])
            labels = optax.smooth_labels(jax.nn.one_hot(batch["label"], 1000), 0.1)
            decay = sum(jnp.sum(w**2) for w in jax.tree.leaves(params) if w.ndim > 1)
            return optax.softmax_cross_entropy(logits, labels).mean() + 5e-5 * decay, (logits, new)

        (loss, (logits, new)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        state = state.apply_gradients(grads=grads, batch_stats=new["batch_stats"])
        return state, {"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == batch["label"])}

    fn = jax.jit(train_step, in_shardings=(replicated, batched, replicated),
                 out_shardings=(replicated, replicated), donate_argnums=0)
    rng = jax.eval_shape(lambda: jax.random.key(0))
    batch = {"image": jax.ShapeDtypeStruct((64, 128, 128, 3), jnp.uint8), "label": jax.ShapeDtypeStruct((64,), jnp.int32)}
    return fn, (jax.eval_shape(init, rng), batch, rng)
