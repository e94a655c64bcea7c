# mypy: ignore-errors
"""Clean. LoRA: a frozen bfloat16 base, divided over both mesh axes by its flax nnx metadata;
only the adapters, which are small and whole everywhere, are trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

DIM, HIDDEN, LAYERS, RANK, CLASSES = 1024, 4096, 3, 4, 16
BATCH, SEQ = 16, 256


class Frozen(nnx.Variable):
    """A weight of the base model."""


class Adapter(nnx.Param):
    """A trained factor."""


class LoraLinear(nnx.Module):
    def __init__(self, n_in, n_out, names, rngs):
        base = nnx.initializers.lecun_normal()(rngs.params(), (n_in, n_out), jnp.bfloat16)
        self.base = Frozen(base, out_sharding=names)
        normal = nnx.initializers.normal(0.02)
        self.a = Adapter(normal(rngs.params(), (n_in, RANK), jnp.float32))
        self.b = Adapter(jnp.zeros((RANK, n_out), jnp.float32))

    def __call__(self, x):
        low = (x @ self.a[...].astype(x.dtype)) @ self.b[...].astype(x.dtype)
        return x @ self.base[...] + 2.0 * low


class Block(nnx.Module):
    def __init__(self, rngs):
        self.gate = LoraLinear(DIM, HIDDEN, ("fsdp", "tp"), rngs)
        self.up = LoraLinear(DIM, HIDDEN, ("fsdp", "tp"), rngs)
        self.down = LoraLinear(HIDDEN, DIM, ("tp", "fsdp"), rngs)
        self.mix = LoraLinear(SEQ, SEQ, (None, None), rngs)

    def __call__(self, x):
        h = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
        x = x + self.mix(h.swapaxes(1, 2)).swapaxes(1, 2)
        h = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
        return x + self.down(nnx.silu(self.gate(h)) * self.up(h))


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.head = Adapter(jnp.zeros((DIM, CLASSES)))

    def __call__(self, x):
        for block in self.blocks:
            x = nnx.remat(Block.__call__)(block, x)
        return x.mean(axis=1).astype(jnp.float32) @ self.head[...]


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("fsdp", "tp"))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("fsdp", None, None))
    with nnx.use_eager_sharding(False):
        model = nnx.eval_shape(lambda: Classifier(nnx.Rngs(0)))
    graphdef, adapters, frozen = nnx.split(model, Adapter, Frozen)
    frozen_shardings = nnx.get_named_sharding(frozen, mesh)
    tx = optax.adamw(1e-4)
    opt_state = jax.eval_shape(tx.init, adapters)

    def train_step(adapters, opt_state, frozen, features, labels):
        def loss_fn(adapters):
            logits = nnx.merge(graphdef, adapters, frozen, copy=True)(features)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(adapters)
        updates, opt_state = tx.update(grads, opt_state, adapters)
        return optax.apply_updates(adapters, updates), opt_state, loss

    fn = jax.jit(
        train_step,
        in_shardings=(whole, whole, frozen_shardings, rows, NamedSharding(mesh, P("fsdp"))),
        out_shardings=(whole, whole, whole),
        donate_argnums=(0, 1),
    )
    features = jax.ShapeDtypeStruct((BATCH, SEQ, DIM), jnp.bfloat16)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return fn, (adapters, opt_state, frozen, features, labels)
