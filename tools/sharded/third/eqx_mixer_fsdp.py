# mypy: ignore-errors
"""Fault: gathered. An equinox MLP-Mixer with FSDP weights casts and gathers the whole stack of blocks ahead of the scan in place of one block at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
DEPTH, TOKENS, DIM, BATCH, CLASSES = 12, 256, 1024, 32, 1000


class MixerBlock(eqx.Module):
    token_in: jax.Array
    token_out: jax.Array
    channel_in: jax.Array
    channel_out: jax.Array
    scale: jax.Array

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.token_in = 0.02 * jax.random.normal(k[0], (TOKENS, 2 * TOKENS))
        self.token_out = 0.02 * jax.random.normal(k[1], (2 * TOKENS, TOKENS))
        self.channel_in = 0.02 * jax.random.normal(k[2], (DIM, 4 * DIM))
        self.channel_out = 0.02 * jax.random.normal(k[3], (4 * DIM, DIM))
        self.scale = jnp.ones((2, DIM))

    def __call__(self, x):
        y = jnp.einsum("btd,ts->bsd", x * self.scale[0], self.token_in)
        x = x + jnp.einsum("bsd,st->btd", jax.nn.gelu(y), self.token_out)
        return x + jax.nn.gelu((x * self.scale[1]) @ self.channel_in) @ self.channel_out


class Mixer(eqx.Module):
    stem: jax.Array
    blocks: MixerBlock
    head: jax.Array

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.stem = jax.random.normal(a, (768, DIM))
        self.blocks = eqx.filter_vmap(MixerBlock)(jax.random.split(b, DEPTH))
        self.head = jax.random.normal(c, (DIM, CLASSES))


def unshard(tree, mesh):
    return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), NamedSharding(mesh, P())), tree)  # FAULT


def forward(model, x, mesh, ahead):
    x = x.astype(jnp.bfloat16) @ unshard(model.stem, mesh)
    blocks = model.blocks
    if ahead:
        blocks = unshard(blocks, mesh)  # FAULT

    @jax.checkpoint
    def body(x, block):
        block = block if ahead else unshard(block, mesh)
        return jax.lax.with_sharding_constraint(block(x), NamedSharding(mesh, P("fsdp"))), None

    x, _ = jax.lax.scan(body, x, blocks)  # FAULT
    return jnp.mean(x, 1) @ unshard(model.head, mesh)


def build(devices, ahead):
    mesh = Mesh(np.array(devices), ("fsdp",))

    def fsdp(s):
        axis = 1 if s.ndim == 3 and s.shape[0] == DEPTH else 0
        spec = [None] * s.ndim
        if s.shape[axis] % 4 == 0:
            spec[axis] = "fsdp"
        return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, P(*spec)))

    model = jax.tree.map(fsdp, eqx.filter_eval_shape(Mixer, jax.random.key(0)))
    batch = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P("fsdp")))

    def loss(model, x, y):
        logp = jax.nn.log_softmax(forward(model, x, mesh, ahead).astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logp, y[:, None], 1))

    def train(model, x, y):
        value, grads = jax.value_and_grad(loss)(model, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, model, grads), value

    outs = (jax.tree.map(lambda s: s.sharding, model), NamedSharding(mesh, P()))
    return jax.jit(train, donate_argnums=0, out_shardings=outs), (model, batch((BATCH, TOKENS, 768), jnp.float32), batch((BATCH,), jnp.int32))


def make_faulty(devices):
    return build(devices, True)  # FAULT


def make_fixed(devices):
    return build(devices, False)
