# mypy: ignore-errors
"""Fixed."""
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh

TARGET = "cpu"

BATCH, IMAGE, PATCH = 64, 192, 16
DIM, HEADS, DEPTH, CLASSES = 384, 6, 2, 1000

AXIS_RULES = (
    ("batch", ("data", "fsdp")),
    ("patch", None),
    ("act", None),
    ("embed", "fsdp"),
    ("mlp", None),
    ("heads", None),
    ("classes", None),
)

init = nn.initializers.truncated_normal(0.02)


def dense(features, axes, name, dtype=jnp.bfloat16):
    return nn.Dense(features, use_bias=False, dtype=dtype, name=name,
                    kernel_init=nn.with_logical_partitioning(init, axes))


def tokens(x, mesh):
    return nn.with_logical_constraint(x, ("batch", "patch", "act"), mesh=mesh)


class Encoder1D(nn.Module):
    mesh: Any

    @nn.compact
    def __call__(self, x):
        b, n, d = x.shape
        y = nn.LayerNorm(use_bias=False, use_scale=False, dtype=jnp.bfloat16)(x)
        qkv = dense(3 * d, ("embed", "heads"), "qkv")(y).reshape(b, n, 3, HEADS, d // HEADS)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        att = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // HEADS) ** -0.5, axis=-1)
        y = jnp.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, n, d)
        x = tokens(x + dense(d, ("heads", "embed"), "out")(y), self.mesh)
        y = nn.LayerNorm(use_bias=False, use_scale=False, dtype=jnp.bfloat16)(x)
        y = nn.gelu(dense(4 * d, ("embed", "mlp"), "up")(y))
        return tokens(x + dense(d, ("mlp", "embed"), "down")(y), self.mesh)


class ViT(nn.Module):
    mesh: Any

    @nn.compact
    def __call__(self, images):
        b, n = images.shape[0], IMAGE // PATCH
        x = images.reshape(b, n, PATCH, n, PATCH, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, n * n, -1)
        x = tokens(dense(DIM, (None, "embed"), "patches")(x), self.mesh)
        x = x + self.param("pos", nn.with_logical_partitioning(init, (None, "embed")), (n * n, DIM)).astype(x.dtype)
        for i in range(DEPTH):
            x = Encoder1D(self.mesh, name=f"block{i}")(x)
        return dense(CLASSES, ("embed", "classes"), "head", jnp.float32)(x.mean(axis=1))


def step(state, images, labels):
    def loss_fn(params):
        with nn.logical_axis_rules(AXIS_RULES):
            logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "fsdp"))
    model = ViT(mesh)
    images = jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.bfloat16)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)

    def create(key):
        params = model.init(key, jnp.zeros((1, IMAGE, IMAGE, 3), jnp.bfloat16))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))

    boxed = jax.eval_shape(create, jax.random.key(0))
    state_shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, AXIS_RULES)
    data = nn.logical_to_mesh_sharding(jax.sharding.PartitionSpec("batch"), mesh, AXIS_RULES)
    jitted = jax.jit(step, in_shardings=(state_shardings, data, data),
                     out_shardings=(state_shardings, None), donate_argnums=0)
    return jitted, (nn.unbox(boxed), images, labels)
