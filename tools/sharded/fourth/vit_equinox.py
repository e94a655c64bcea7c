# mypy: ignore-errors
"""Fault: optimizer. The weights are split over the mesh but the Adam moments are placed with one replicated sharding
for the whole optimizer state."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

IMAGE, PATCH, WIDTH, DEPTH, HEADS, CLASSES, BATCH = 64, 8, 1024, 2, 16, 1000, 32


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attn: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width, heads, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.attn = eqx.nn.MultiheadAttention(heads, width, key=k1)
        self.up = eqx.nn.Linear(width, 4 * width, key=k2)
        self.down = eqx.nn.Linear(4 * width, width, key=k3)

    def __call__(self, x):
        h = jax.vmap(self.norm1)(x)
        x = x + self.attn(h, h, h)
        h = jax.vmap(self.norm2)(x)
        return x + jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(h)))


class ViT(eqx.Module):
    embed: eqx.nn.Linear
    pos: jax.Array
    blocks: list
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, DEPTH + 2)
        self.embed = eqx.nn.Linear(3 * PATCH * PATCH, WIDTH, key=keys[0])
        self.pos = jnp.zeros(((IMAGE // PATCH) ** 2, WIDTH))
        self.blocks = [Block(WIDTH, HEADS, k) for k in keys[1:-1]]
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.head = eqx.nn.Linear(WIDTH, CLASSES, key=keys[-1])

    def __call__(self, image):
        n = IMAGE // PATCH
        x = image.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 1, 3, 4).reshape(n * n, -1)
        x = jax.vmap(self.embed)(x) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(axis=0)))


def fsdp_sharding(mesh, leaf):
    """Split the largest divisible dimension of each matrix."""
    n = mesh.shape["fsdp"]
    if leaf.ndim < 2:
        return NamedSharding(mesh, P())
    dim = max((d for d in range(leaf.ndim) if leaf.shape[d] % n == 0), key=lambda d: leaf.shape[d])
    return NamedSharding(mesh, P(*["fsdp" if d == dim else None for d in range(leaf.ndim)]))


def with_sharding(tree, shardings):
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)


class Setup:
    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("fsdp",))
        model = eqx.filter_eval_shape(ViT, jax.random.key(0))
        self.params, self.static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))
        self.tx = optax.adamw(1e-3, weight_decay=0.05)
        self.opt_state = jax.eval_shape(self.tx.init, self.params)
        self.param_sh = jax.tree.map(lambda x: fsdp_sharding(self.mesh, x), self.params)

    def loss(self, params, images, labels):
        model = eqx.combine(params, self.static)
        logits = jax.vmap(model)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(self, params, opt_state, images, labels):
        loss, grads = jax.value_and_grad(self.loss)(params, images, labels)
        updates, opt_state = self.tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def program(self, opt_sh):
        rows, rep = NamedSharding(self.mesh, P("fsdp")), NamedSharding(self.mesh, P())
        images = jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.float32, sharding=rows)
        labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows)
        fn = jax.jit(self.step, donate_argnums=(0, 1), out_shardings=(self.param_sh, opt_sh, rep))
        args = (with_sharding(self.params, self.param_sh), with_sharding(self.opt_state, opt_sh), images, labels)  # FAULT
        return fn, args


def make_faulty(devices):
    setup = Setup(devices)
    opt_sh = jax.tree.map(lambda _: NamedSharding(setup.mesh, P()), setup.opt_state)  # FAULT
    return setup.program(opt_sh)


def make_fixed(devices):
    setup = Setup(devices)
    opt_sh = jax.tree.map(lambda x: fsdp_sharding(setup.mesh, x), setup.opt_state)
    return setup.program(opt_sh)
