# mypy: ignore-errors
"""Clean. MLP-Mixer trained with ZeRO-1: weights whole for plain data parallelism, Adam's moments and the gradients' sums divided."""
from functools import partial

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
BLOCKS, TOKENS, WIDTH, TOKEN_FF, FF, PATCH, CLASSES, BATCH = 6, 196, 512, 256, 2048, 16, 1000, 64


class MixerBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.token_in, self.token_out = nnx.Linear(TOKENS, TOKEN_FF, rngs=rngs), nnx.Linear(TOKEN_FF, TOKENS, rngs=rngs)
        self.fc_in, self.fc_out = nnx.Linear(WIDTH, FF, rngs=rngs), nnx.Linear(FF, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.token_out(nnx.gelu(self.token_in(self.norm1(x).swapaxes(1, 2)))).swapaxes(1, 2)
        return x + self.fc_out(nnx.gelu(self.fc_in(self.norm2(x))))


class Mixer(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Conv(3, WIDTH, (PATCH, PATCH), strides=(PATCH, PATCH), rngs=rngs)
        self.blocks = nnx.List([MixerBlock(rngs) for _ in range(BLOCKS)])
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, images):
        x = self.stem(images).reshape(images.shape[0], TOKENS, WIDTH)
        for block in self.blocks:
            x = nnx.remat(MixerBlock.__call__)(block, x)
        return self.head(x.mean(1))


def zero1(mesh, x):
    """Moments are divided along the first dimension that the devices divide; what has none (the token biases) is small."""
    for i, size in enumerate(x.shape):
        if size % mesh.size == 0:
            return NamedSharding(mesh, P(*[None] * i, "replica"))
    return NamedSharding(mesh, P())


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("replica",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("replica"))
    opt = optax.adamw(1e-3, weight_decay=0.1)
    graph, params = nnx.split(nnx.eval_shape(lambda: Mixer(nnx.Rngs(0))))
    params = nnx.to_pure_dict(params)
    state = jax.eval_shape(opt.init, params)
    moments = jax.tree.map(partial(zero1, mesh), state)
    divided = jax.tree.map(partial(zero1, mesh), params)

    def loss_fn(p, images, labels):
        s = nnx.state(nnx.eval_shape(lambda: Mixer(nnx.Rngs(0))))
        nnx.replace_by_pure_dict(s, p)
        logits = nnx.merge(graph, s)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params, state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        grads = jax.lax.with_sharding_constraint(grads, divided)
        updates, state = opt.update(grads, state, jax.lax.with_sharding_constraint(params, divided))
        return optax.apply_updates(params, updates), state, loss

    step = jax.jit(step, in_shardings=(whole, moments, split, split), out_shardings=(whole, moments, whole), donate_argnums=(0, 1))
    images = jax.ShapeDtypeStruct((BATCH, 224, 224, 3), jnp.float32)
    return step, (params, state, images, jax.ShapeDtypeStruct((BATCH,), jnp.int32))
