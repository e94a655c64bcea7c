# mypy: ignore-errors
"""Vision models of flax.linen, on the CPU."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

TARGETS = ("cpu",)


class TrainState(train_state.TrainState):
    batch_stats: dict


class EncoderBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.SelfAttention(num_heads=self.heads)(y)
        y = nn.LayerNorm()(x)
        y = nn.gelu(nn.Dense(4 * x.shape[-1])(y))
        return x + nn.Dense(x.shape[-1])(y)


class ViT(nn.Module):
    width: int = 384
    depth: int = 8
    heads: int = 6

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.width, (16, 16), strides=(16, 16))(images)
        x = x.reshape(x.shape[0], -1, self.width)
        x = x + self.param("position", nn.initializers.normal(0.02), (1, x.shape[1], self.width))
        for i in range(self.depth):
            x = EncoderBlock(self.heads, name=f"block_{i}")(x)
        return nn.Dense(1000)(nn.LayerNorm()(x).mean(axis=1))


class ResidualBlock(nn.Module):
    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        norm = lambda: nn.BatchNorm(use_running_average=not train)
        y = nn.relu(norm()(nn.Conv(self.features, (3, 3), self.stride, use_bias=False)(x)))
        y = norm()(nn.Conv(self.features, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm()(nn.Conv(self.features, (1, 1), self.stride, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple = (2, 2, 2, 2)

    @nn.compact
    def __call__(self, x, train=True):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(64, (7, 7), 2)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for i, count in enumerate(self.stages):
            for j in range(count):
                x = ResidualBlock(64 * 2**i, 2 if i > 0 and j == 0 else 1)(x, train)
        return nn.Dense(1000)(x.mean((1, 2)))


def make_vit(batch=32):
    model = ViT()
    images = jax.ShapeDtypeStruct((batch, 224, 224, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)

    def create(key):
        variables = model.init(key, jnp.zeros(images.shape))
        tx = optax.adamw(1e-3)
        return train_state.TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx)

    @jax.jit
    def train_step(state, images, labels):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    return train_step, (jax.eval_shape(create, jax.random.key(0)), images, labels)


def make_resnet(batch=32):
    model = ResNet()
    images = jax.ShapeDtypeStruct((batch, 160, 160, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)

    def create(key):
        variables = model.init(key, jnp.zeros(images.shape))
        return TrainState.create(
            apply_fn=model.apply, params=variables["params"], tx=optax.sgd(0.1, momentum=0.9),
            batch_stats=variables["batch_stats"],
        )  # fmt: skip

    def train_step(state, images, labels):
        def loss_fn(params):
            logits, new = state.apply_fn(
                {"params": params, "batch_stats": state.batch_stats}, images, mutable=["batch_stats"]
            )
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, new["batch_stats"]

        (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=stats), loss

    step = jax.jit(train_step, donate_argnums=(0,))
    return step, (jax.eval_shape(create, jax.random.key(0)), images, labels)


def make_clip(batch=256, width=256):
    """Contrastive pairs: a small ViT against bags of words."""
    model = ViT(width=192, depth=3, heads=3)

    def embed_text(params, tokens):
        return params["words"][tokens].mean(1) @ params["project"]

    def loss_fn(params, images, tokens):
        a = model.apply({"params": params["image"]}, images)
        b = embed_text(params["text"], tokens)
        a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        logits = a @ b.T * jnp.exp(params["temperature"])
        labels = jnp.arange(batch)
        ce = optax.softmax_cross_entropy_with_integer_labels
        return (ce(logits, labels) + ce(logits.T, labels)).mean() / 2

    @jax.jit
    def train_step(params, momentum, images, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, tokens)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, loss

    images = jax.ShapeDtypeStruct((batch, 112, 112, 3), jnp.float32)
    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = {
        "image": jax.eval_shape(model.init, jax.random.key(0), images)["params"],
        "text": {"words": s(30000, width), "project": s(width, 1000)},
        "temperature": s(),
    }
    return train_step, (params, params, images, jax.ShapeDtypeStruct((batch, 32), jnp.int32))
