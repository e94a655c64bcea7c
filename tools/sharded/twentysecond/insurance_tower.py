# mypy: ignore-errors
"""Clean. Claim-severity regression over many tabular features: an equinox tower on a two-dimensional mesh, hidden
features split over one axis and the weights' other dimension over the other. Biases and scales are whole.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FEATURES, WIDTH, HIDDEN, DEPTH, BINS = 1024, 2048, 8192, 8, 128
BATCH = 16_384


class Layer(eqx.Module):
    up: jax.Array
    bias: jax.Array
    down: jax.Array
    scale: jax.Array


class Tower(eqx.Module):
    read: jax.Array
    layers: Layer
    write: jax.Array


def shapes():
    def s(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    layers = Layer(
        s(DEPTH, WIDTH, HIDDEN), s(DEPTH, HIDDEN), s(DEPTH, HIDDEN, WIDTH), s(DEPTH, WIDTH)
    )
    return Tower(s(FEATURES, WIDTH), layers, s(WIDTH, BINS))


SPECS = Tower(
    read=P("row", "unit"),
    layers=Layer(up=P(None, "row", "unit"), bias=P(), down=P(None, "unit", "row"), scale=P()),
    write=P("row", None),
)


def make_loss(mesh):
    def pin(x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    def forward(tower, x):
        x = pin(x.astype(jnp.bfloat16) @ tower.read.astype(jnp.bfloat16), "row", "unit")

        @jax.checkpoint
        def body(x, layer):
            y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * layer.scale.astype(x.dtype)
            h = pin(y @ layer.up.astype(x.dtype) + layer.bias.astype(x.dtype), "row", "unit")
            return pin(x + jax.nn.silu(h) @ layer.down.astype(x.dtype), "row", "unit"), None

        x, _ = jax.lax.scan(body, x, tower.layers)
        return (x @ tower.write.astype(x.dtype)).astype(jnp.float32)

    def loss(tower, features, bins, exposure):
        logits = forward(tower, features)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, bins)
        return jnp.sum(each * exposure) / jnp.sum(exposure)

    return loss


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("row", "unit"))
    loss_fn = make_loss(mesh)
    tx = optax.adam(1e-3, mu_dtype=jnp.bfloat16)
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS, is_leaf=lambda s: isinstance(s, P))
    tower = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes(), shardings
    )
    whole = NamedSharding(mesh, P())
    state = optax.tree.map_params(
        tx,
        lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p.sharding),
        jax.eval_shape(tx.init, tower),
        tower,
        transform_non_params=lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=whole),
    )
    kept = jax.tree.map(lambda x: x.sharding, (tower, state))

    def step(tower, state, features, bins, exposure):
        loss, grads = jax.value_and_grad(loss_fn)(tower, features, bins, exposure)
        updates, state = tx.update(grads, state, tower)
        return eqx.apply_updates(tower, updates), state, loss

    rows = NamedSharding(mesh, P("row"))
    batch = (
        jax.ShapeDtypeStruct((BATCH, FEATURES), jnp.float32, sharding=NamedSharding(mesh, P("row", "unit"))),
        jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows),
        jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows),
    )
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*kept, whole)), (tower, state, *batch)
