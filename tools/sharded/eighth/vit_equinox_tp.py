# mypy: ignore-errors
"""Clean. A vision transformer with tensor parallelism: heads and hidden layer are split, patch embedding, positions
and the residual stream between the blocks are whole on purpose."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, HEADS, MLP, DEPTH = 512, 8, 2048, 2
IMAGE, PATCH, CLASSES = 512, 16, 1024


def shard(x, mesh, *axes):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))


class Attention(eqx.Module):
    qkv: jax.Array
    out: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.qkv = jax.random.normal(a, (3, DIM, HEADS, DIM // HEADS)) * DIM**-0.5
        self.out = jax.random.normal(b, (HEADS, DIM // HEADS, DIM)) * DIM**-0.5

    def __call__(self, x, mesh):
        q, k, v = jnp.einsum("bnd,cdhk->cbnhk", x, self.qkv)
        q, k, v = (shard(t, mesh, "data", None, "model", None) for t in (q, k, v))
        logits = jnp.einsum("bnhk,bmhk->bhnm", q, k) * (DIM // HEADS) ** -0.5
        probs = jax.nn.softmax(logits, axis=-1)
        mixed = jnp.einsum("bhnm,bmhk->bnhk", probs, v)
        return shard(jnp.einsum("bnhk,hkd->bnd", mixed, self.out), mesh, "data", None, None)


class Mlp(eqx.Module):
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.up = jax.random.normal(a, (DIM, MLP)) * DIM**-0.5
        self.down = jax.random.normal(b, (MLP, DIM)) * MLP**-0.5

    def __call__(self, x, mesh):
        h = shard(jax.nn.gelu(x @ self.up), mesh, "data", None, "model")
        return shard(h @ self.down, mesh, "data", None, None)


class ViT(eqx.Module):
    embed: jax.Array
    pos: jax.Array
    blocks: list
    head: jax.Array

    def __init__(self, key):
        keys = jax.random.split(key, 2 * DEPTH + 3)
        self.embed = jax.random.normal(keys[0], (PATCH * PATCH * 3, DIM)) * 0.02
        self.pos = jax.random.normal(keys[1], ((IMAGE // PATCH) ** 2, DIM)) * 0.02
        self.blocks = [(Attention(keys[2 + 2 * i]), Mlp(keys[3 + 2 * i])) for i in range(DEPTH)]
        self.head = jax.random.normal(keys[-1], (DIM, CLASSES)) * 0.02

    def __call__(self, images, mesh):
        b, g = images.shape[0], IMAGE // PATCH
        x = images.reshape(b, g, PATCH, g, PATCH, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, g * g, -1)
        x = shard(x @ self.embed + self.pos, mesh, "data", None, None)
        for attn, mlp in self.blocks:
            x = x + attn(norm(x), mesh)
            x = x + mlp(norm(x), mesh)
        return norm(x).mean(axis=1) @ self.head


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def spec_of(path, leaf):
    name = jax.tree_util.keystr(path)
    table = {".qkv": P(None, None, "model", None), ".out": P("model", None, None),
             ".up": P(None, "model"), ".down": P("model", None), ".head": P(None, "model")}
    return next((s for suffix, s in table.items() if name.endswith(suffix)), P())


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    optimizer = optax.sgd(1e-3, momentum=0.9)

    def init(key):
        model = ViT(key)
        return model, optimizer.init(model)

    def place(path, leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec_of(path, leaf)))

    state = jax.tree_util.tree_map_with_path(place, jax.eval_shape(init, jax.random.key(0)))
    shardings = jax.tree.map(lambda a: a.sharding, state)

    def loss_fn(model, images, labels):
        logits = model(images, mesh)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))
    def train_step(state, images, labels):
        model, opt_state = state
        loss, grads = jax.value_and_grad(loss_fn)(model, images, labels)
        updates, opt_state = optimizer.update(grads, opt_state, model)
        return (optax.apply_updates(model, updates), opt_state), loss

    batch = NamedSharding(mesh, P("data"))
    images = jax.ShapeDtypeStruct((8, IMAGE, IMAGE, 3), jnp.float32, sharding=batch)
    labels = jax.ShapeDtypeStruct((8,), jnp.int32, sharding=batch)
    return train_step, (state, images, labels)
