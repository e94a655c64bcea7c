# mypy: ignore-errors
"""Clean. The config's names are those of the mesh, so the weights are split over both of its axes.

Malware classifier over raw bytes: gated convolutions and wide dense layers in equinox, Lion as optimizer.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 2048
    hidden: int = 8192
    layers: int = 4
    window: int = 64
    families: int = 256
    files: int = 32
    length: int = 16_384
    batch_axis: str = "fsdp"
    feature_axis: str = "tp"
    mesh_shape: tuple = (4, 4)
    mesh_axes: tuple = ("fsdp", "tp")


class Gated(eqx.Module):
    gate: jax.Array
    up: jax.Array
    down: jax.Array
    scale: jax.Array

    def __call__(self, x, pin):
        y = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * self.scale.astype(x.dtype)
        h = jax.nn.silu(y @ self.gate.astype(x.dtype)) * (y @ self.up.astype(x.dtype))
        return x + pin(h) @ self.down.astype(x.dtype)


class Classifier(eqx.Module):
    table: jax.Array
    patch: jax.Array
    blocks: Gated
    head: jax.Array


def describe(cfg):
    """Shape and names of the axes of every parameter."""
    n, d, f = cfg.layers, cfg.width, cfg.hidden
    b, t = cfg.batch_axis, cfg.feature_axis
    blocks = Gated(
        gate=((n, d, f), (None, b, t)),
        up=((n, d, f), (None, b, t)),
        down=((n, f, d), (None, t, b)),
        scale=((n, d), (None, None)),
    )
    return Classifier(
        table=((256, 16), (None, None)),
        patch=((cfg.window * 16, d), (b, t)),
        blocks=blocks,
        head=((d, cfg.families), (b, None)),
    )


def resolve(mesh, names):
    """Names to a sharding; what this mesh lacks is whole, so that one config serves every pod."""
    return NamedSharding(mesh, P(*(n if n in mesh.axis_names else None for n in names)))


def make_loss(cfg, mesh):
    def pin(x, *names):
        return jax.lax.with_sharding_constraint(x, resolve(mesh, names))

    def loss(model, data, family):
        files = data.shape[0]
        x = model.table.astype(jnp.bfloat16)[data].reshape(files, cfg.length // cfg.window, -1)
        x = pin(x @ model.patch.astype(x.dtype), cfg.batch_axis, None, None)

        @jax.checkpoint
        def body(x, block):
            y = block(x, lambda h: pin(h, cfg.batch_axis, None, cfg.feature_axis))
            return pin(y, cfg.batch_axis, None, None), None

        x, _ = jax.lax.scan(body, x, model.blocks)
        logits = x.max(axis=1).astype(jnp.float32) @ model.head
        return optax.softmax_cross_entropy_with_integer_labels(logits, family).mean()

    return loss


def make_fixed(devices):
    cfg = Config()
    mesh = Mesh(np.asarray(devices).reshape(cfg.mesh_shape), cfg.mesh_axes)
    loss_fn = make_loss(cfg, mesh)
    tx = optax.lion(1e-4, weight_decay=0.01)

    def param(leaf):
        shape, names = leaf
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=resolve(mesh, names))

    model = jax.tree.map(param, describe(cfg), is_leaf=lambda x: isinstance(x, tuple) and isinstance(x[0], tuple))
    whole = NamedSharding(mesh, P())
    abstract = jax.eval_shape(tx.init, model)
    state = optax.tree.map_params(
        tx,
        lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p.sharding),
        abstract,
        model,
        transform_non_params=lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=whole),
    )
    kept = jax.tree.map(lambda x: x.sharding, (model, state))

    def step(model, state, data, family):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(model, data, family)
        updates, state = tx.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, loss

    data = jax.ShapeDtypeStruct((cfg.files, cfg.length), jnp.uint8, sharding=resolve(mesh, (cfg.batch_axis,)))
    family = jax.ShapeDtypeStruct((cfg.files,), jnp.int32, sharding=resolve(mesh, (cfg.batch_axis,)))
    step = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*kept, whole))
    return step, (model, state, data, family)
