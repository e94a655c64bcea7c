# mypy: ignore-errors
"""Clean. Data parallelism with ZeRO-1: the weights are whole on every device for the passes, both Adam moments are divided."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class EncoderBlock(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, qkv_features=self.dim)(y, y)
        y = nn.Dense(4 * self.dim)(nn.LayerNorm()(x))
        return x + nn.Dense(self.dim)(nn.gelu(y))


class ViT(nn.Module):
    dim: int = 384
    heads: int = 6
    depth: int = 8
    patch: int = 16
    classes: int = 1000

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.dim, (self.patch,) * 2, strides=(self.patch,) * 2, padding="VALID")(images)
        x = x.reshape(x.shape[0], -1, self.dim)
        x = x + self.param("pos", nn.initializers.normal(0.02), (1, x.shape[1], self.dim))
        for _ in range(self.depth):
            x = nn.remat(EncoderBlock)(self.dim, self.heads)(x)
        return nn.Dense(self.classes)(nn.LayerNorm()(x).mean(1))


class Trainer:
    """One axis, "dp". `whole` is for weights, `sliced` for what only the update needs."""

    def __init__(self, devices, batch=128, size=128):
        self.mesh = Mesh(np.array(devices), ("dp",))
        self.model = ViT()
        self.schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 100_000)
        self.tx = optax.adamw(self.schedule, weight_decay=0.05)
        self.images = jax.ShapeDtypeStruct((batch, size, size, 3), jnp.float32, sharding=self.named(P("dp")))
        self.labels = jax.ShapeDtypeStruct((batch,), jnp.int32, sharding=self.named(P("dp")))
        shapes = jax.eval_shape(self.model.init, jax.random.key(0), self.images)["params"]
        self.params = self.place(shapes, self.whole)
        self.opt_state = self.place(jax.eval_shape(self.tx.init, shapes), self.sliced)

    def named(self, spec):
        return NamedSharding(self.mesh, spec)

    def whole(self, leaf):
        return self.named(P())

    def sliced(self, leaf):
        """The largest dimension that the devices divide; vectors stay whole."""
        fits = [(n, i) for i, n in enumerate(leaf.shape) if n % self.mesh.size == 0]
        if leaf.ndim < 2 or not fits:
            return self.named(P())
        return self.named(P(*[None] * max(fits)[1], "dp"))

    def place(self, tree, rule):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rule(x)), tree)

    def constrain(self, tree, rule):
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, rule(x)), tree)

    def loss(self, params, images, labels):
        logits = self.model.apply({"params": params}, images)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)
        return optax.softmax_cross_entropy(logits, targets).mean()

    def step(self, params, opt_state, images, labels):
        loss, grads = jax.value_and_grad(self.loss)(params, images, labels)
        grads = self.constrain(grads, self.sliced)
        updates, opt_state = self.tx.update(grads, opt_state, self.constrain(params, self.sliced))
        params = self.constrain(optax.apply_updates(params, updates), self.whole)
        return params, self.constrain(opt_state, self.sliced), loss


def make_clean(devices):
    trainer = Trainer(devices)
    out = jax.tree.map(lambda x: x.sharding, (trainer.params, trainer.opt_state))
    step = jax.jit(trainer.step, donate_argnums=(0, 1), out_shardings=(*out, trainer.named(P())))
    return step, (trainer.params, trainer.opt_state, trainer.images, trainer.labels)
