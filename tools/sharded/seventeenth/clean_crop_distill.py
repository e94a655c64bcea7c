# mypy: ignore-errors
"""Clean. Distils a segmentation network for satellite tiles into a small one: pure data parallelism
over 8 devices; the student, its moments and the frozen teacher are whole because they are small.
"""
import functools
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class NetConfig:
    widths: tuple
    depth: int
    groups: int = 8


@dataclass(frozen=True)
class DistillConfig:
    bands: int = 10
    classes: int = 17
    tile: int = 128
    batch: int = 64
    temperature: float = 2.0
    hard_weight: float = 0.3
    student: NetConfig = field(default_factory=lambda: NetConfig(widths=(16, 32, 64), depth=1))
    teacher: NetConfig = field(default_factory=lambda: NetConfig(widths=(32, 64, 128), depth=2))


conv = functools.partial(nnx.Conv, kernel_size=(3, 3), padding="SAME", dtype=jnp.float32)


class Residual(nnx.Module):
    def __init__(self, width, groups, rngs):
        self.norm = nnx.GroupNorm(width, num_groups=groups, rngs=rngs)
        self.conv1 = conv(width, width, rngs=rngs)
        self.conv2 = conv(width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.conv2(nnx.silu(self.conv1(nnx.silu(self.norm(x)))))


class Segmenter(nnx.Module):
    """A small U-shaped network."""

    def __init__(self, bands, classes, net, rngs):
        w = net.widths
        stage = lambda width: nnx.List([Residual(width, net.groups, rngs) for _ in range(net.depth)])
        self.stem = conv(bands, w[0], rngs=rngs)
        self.down = nnx.List([conv(a, b, strides=(2, 2), rngs=rngs) for a, b in zip(w, w[1:])])
        self.encode = nnx.List([stage(width) for width in w])
        self.join = nnx.List([conv(a + b, a, rngs=rngs) for a, b in zip(w, w[1:])])
        self.decode = nnx.List([stage(width) for width in w[:-1]])
        self.head = nnx.Conv(w[0], classes, kernel_size=(1, 1), rngs=rngs)

    def __call__(self, x):
        x, skips = self.stem(x), []
        for i, stage in enumerate(self.encode):
            for block in stage:
                x = block(x)
            if i < len(self.down):
                skips.append(x)
                x = self.down[i](x)
        for i in reversed(range(len(self.join))):
            b, h, w, _ = skips[i].shape
            x = jax.image.resize(x, (b, h, w, x.shape[-1]), "nearest")
            x = self.join[i](jnp.concatenate([skips[i], x], axis=-1))
            for block in self.decode[i]:
                x = block(x)
        return self.head(x)


def distillation_loss(student, soft, labels, tiles, cfg):
    logits = student(tiles)
    log_soft = jax.nn.log_softmax(logits / cfg.temperature)
    kl = jnp.sum(soft * (jnp.log(soft + 1e-8) - log_soft), axis=-1).mean() * cfg.temperature**2
    known = labels >= 0
    hard = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    hard = jnp.sum(hard * known) / jnp.maximum(known.sum(), 1)
    return kl + cfg.hard_weight * hard


def make_clean(devices):
    cfg = DistillConfig()
    mesh = Mesh(np.array(devices), ("data",))
    everywhere, by_tile = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def build(net):
        return nnx.split(nnx.eval_shape(lambda: Segmenter(cfg.bands, cfg.classes, net, nnx.Rngs(0))))

    student_graph, student = build(cfg.student)
    teacher_graph, teacher = build(cfg.teacher)
    moments = jax.eval_shape(tx.init, student)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2), out_shardings=everywhere)
    def train_step(student, moments, average, teacher, tiles, labels):
        seen = nnx.merge(teacher_graph, teacher)(tiles)
        soft = jax.lax.stop_gradient(jax.nn.softmax(seen / cfg.temperature))

        def loss_fn(student):
            return distillation_loss(nnx.merge(student_graph, student), soft, labels, tiles, cfg)

        loss, grads = jax.value_and_grad(loss_fn)(student)
        updates, moments = tx.update(grads, moments, student)
        student = optax.apply_updates(student, updates)
        average = optax.incremental_update(student, average, 0.001)
        return student, moments, average, loss

    def whole(tree):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), tree)

    size = (cfg.batch, cfg.tile, cfg.tile)
    tiles = jax.ShapeDtypeStruct((*size, cfg.bands), jnp.float32, sharding=by_tile)
    labels = jax.ShapeDtypeStruct(size, jnp.int32, sharding=by_tile)
    return train_step, (whole(student), whole(moments), whole(student), whole(teacher), tiles, labels)
