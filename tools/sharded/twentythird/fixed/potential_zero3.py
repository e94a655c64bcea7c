# mypy: ignore-errors
"""Clean. Training of an equinox residual network for atomic energies on precomputed descriptors: the weights and the
momentum are split over all devices (ZeRO-3, written out in a shard_map) and gathered layer by layer.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

DESCRIPTORS, WIDTH, HIDDEN, DEPTH = 512, 1024, 4096, 12
ATOMS = 2048
LEARNING_RATE, MOMENTUM = 1e-3, 0.9


class Block(eqx.Module):
    up: jax.Array
    down: jax.Array
    scale: jax.Array

    def __call__(self, h):
        normed = h * jax.lax.rsqrt(jnp.mean(h * h, axis=-1, keepdims=True) + 1e-6) * self.scale
        return h + jax.nn.silu(normed @ self.up) @ self.down


class EnergyNet(eqx.Module):
    embed: jax.Array
    blocks: Block
    head: jax.Array

    @staticmethod
    def create(key):
        a, b, c, d = jax.random.split(key, 4)
        return EnergyNet(
            embed=jax.random.normal(a, (DESCRIPTORS, WIDTH)) * 0.02,
            blocks=Block(
                up=jax.random.normal(b, (DEPTH, WIDTH, HIDDEN)) * 0.02,
                down=jax.random.normal(c, (DEPTH, HIDDEN, WIDTH)) * 0.02,
                scale=jnp.ones((DEPTH, WIDTH)),
            ),
            head=jax.random.normal(d, (WIDTH,)) * 0.02,
        )


def split_of(leaf):
    """Blocks are split over their rows, the first dimension after that of the layers."""
    return {1: P(), 2: P(None, None), 3: P(None, "zero", None)}[leaf.ndim]


def unshard(block):
    def whole(leaf):
        if leaf.ndim < 2:
            return leaf
        return jax.lax.all_gather(leaf, "zero", axis=0, tiled=True)

    return jax.tree.map(whole, block)


def energies(model, descriptors):
    h = descriptors @ model.embed

    @jax.checkpoint
    def apply(block, h):
        return unshard(block)(h)

    def layer(h, block):
        return apply(block, h), None

    h, _ = jax.lax.scan(layer, h, model.blocks)
    return h @ model.head


def loss_fn(model, descriptors, target):
    error = energies(model, descriptors) - target
    return jnp.mean(jnp.where(jnp.abs(error) < 1.0, 0.5 * error**2, jnp.abs(error) - 0.5))


def local_step(model, velocity, descriptors, target):
    def mean_loss(model):
        return jax.lax.pmean(loss_fn(model, descriptors, target), "zero")

    loss, grads = jax.value_and_grad(mean_loss)(model)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    model = jax.tree.map(lambda p, v: p - LEARNING_RATE * v, model, velocity)
    return model, velocity, loss


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("zero",))
    shapes = jax.eval_shape(EnergyNet.create, jax.random.key(0))
    specs = jax.tree.map(split_of, shapes)
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(specs, specs, P("zero", None), P("zero")),
        out_specs=(specs, specs, P()),
    )

    def place(leaf, spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    model = jax.tree.map(place, shapes, specs)
    descriptors = place(jax.ShapeDtypeStruct((ATOMS, DESCRIPTORS), jnp.float32), P("zero", None))
    target = place(jax.ShapeDtypeStruct((ATOMS,), jnp.float32), P("zero"))
    return jax.jit(step, donate_argnums=(0, 1)), (model, model, descriptors, target)
