# mypy: ignore-errors
"""Fault: dropped. The rules call the hidden axis of the feed-forward kernels "feed_forward", the
modules call it "mlp"; nothing matches, so these kernels and their moments are whole everywhere."""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RULES = (
    ("batch", "data"),
    ("embed", None),
    ("heads", "model"),
    ("kv", None),
    ("feed_forward", "model"),  # FAULT
    ("classes", None),
)

kernel = functools.partial(nn.with_logical_partitioning, nn.initializers.lecun_normal())


class Attention(nn.Module):
    heads: int = 8

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        dim = width // self.heads
        shape, axes = (width, self.heads, dim), ("embed", "heads", "kv")
        q, k, v = (
            jnp.einsum("bsw,whd->bshd", x, self.param(n, kernel(axes), shape)) for n in "qkv"
        )
        probs = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k) * dim**-0.5)
        out = self.param("o", kernel(("heads", "kv", "embed")), (self.heads, dim, width))
        return jnp.einsum("bhst,bthd,hdw->bsw", probs, v, out)


class Mlp(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        up = nn.Dense(self.hidden, use_bias=False, kernel_init=kernel(("embed", "mlp")))  # FAULT
        down = nn.Dense(x.shape[-1], use_bias=False, kernel_init=kernel(("mlp", "embed")))  # FAULT
        return down(nn.gelu(up(x)))


class Encoder(nn.Module):
    layers: int = 2
    hidden: int = 4096
    classes: int = 256

    @nn.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = x + Attention()(nn.LayerNorm(use_bias=False, use_scale=False)(x))
            x = x + Mlp(self.hidden)(nn.LayerNorm(use_bias=False, use_scale=False)(x))
            x = nn.with_logical_constraint(x, ("batch", None, "embed"))
        head = nn.Dense(self.classes, kernel_init=kernel(("embed", "classes")))
        return head(x.mean(axis=1))


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    model, tx = Encoder(), optax.adamw(3e-4)
    patches = jax.ShapeDtypeStruct((16, 128, 1024), jnp.float32)

    def init(key, x):
        params = model.init(key, x)["params"]
        return params, tx.init(params)

    boxed = jax.eval_shape(init, jax.random.key(0), patches)
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    state = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), nn.unbox(boxed), shardings
    )

    def train_step(state, x, labels):
        params, opt_state = state

        def loss_fn(p):
            with mesh, nn.logical_axis_rules(RULES):
                logits = model.apply({"params": p}, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    by_batch = NamedSharding(mesh, P("data"))
    x = jax.ShapeDtypeStruct(patches.shape, patches.dtype, sharding=by_batch)
    y = jax.ShapeDtypeStruct((16,), jnp.int32, sharding=by_batch)
    out = (shardings, NamedSharding(mesh, P()))
    return jax.jit(train_step, donate_argnums=0, out_shardings=out), (state, x, y)
