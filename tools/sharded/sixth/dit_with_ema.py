# mypy: ignore-errors
"""Fault: optimizer. Parameters and Adam's moments of the diffusion transformer are split over all four chips, but the exponential moving average
of the weights is placed with the replicated sharding, so each chip holds it whole."""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, HEADS, DEPTH, PATCH, CHANNELS, SIDE = 1152, 9, 4, 2, 4, 32
TOKENS = (SIDE // PATCH) ** 2
BATCH, EMA_DECAY = 32, 0.9999


class DiTBlock(nnx.Module):
    def __init__(self, rngs):
        def lin(i, o):
            return nnx.Linear(i, o, dtype=jnp.bfloat16, rngs=rngs)

        self.ada, self.qkv, self.proj = lin(DIM, 6 * DIM), lin(DIM, 3 * DIM), lin(DIM, DIM)
        self.fc1, self.fc2 = lin(DIM, 4 * DIM), lin(4 * DIM, DIM)
        self.norm1 = nnx.LayerNorm(DIM, use_bias=False, use_scale=False, dtype=jnp.bfloat16, rngs=rngs)
        self.norm2 = nnx.LayerNorm(DIM, use_bias=False, use_scale=False, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x, c):
        b, t, _ = x.shape
        s1, g1, a1, s2, g2, a2 = jnp.split(self.ada(nnx.silu(c))[:, None], 6, axis=-1)
        h = self.norm1(x) * (1 + g1) + s1
        q, k, v = jnp.split(self.qkv(h).reshape(b, t, HEADS, -1), 3, axis=-1)
        x = x + a1 * self.proj(jax.nn.dot_product_attention(q, k, v).reshape(b, t, DIM))
        return x + a2 * self.fc2(nnx.gelu(self.fc1(self.norm2(x) * (1 + g2) + s2)))


class DiT(nnx.Module):
    def __init__(self, rngs):
        self.inp = nnx.Linear(PATCH * PATCH * CHANNELS, DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.time = nnx.Linear(256, DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.label = nnx.Embed(1000, DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.blocks = nnx.split_rngs(splits=DEPTH)(nnx.vmap(DiTBlock, in_axes=0, out_axes=0))(rngs)
        self.out = nnx.Linear(DIM, PATCH * PATCH * CHANNELS, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x, t, y):
        freq = jnp.exp(-jnp.arange(128) / 128 * 9.2)
        ang = t[:, None] * freq
        c = self.time(jnp.concatenate([jnp.cos(ang), jnp.sin(ang)], -1)) + self.label(y)

        @nnx.scan(in_axes=(0, nnx.Carry, None), out_axes=nnx.Carry)
        @nnx.remat
        def run(block, x, c):
            return block(x, c)

        return self.out(run(self.blocks, self.inp(x), c))


class TrainState(NamedTuple):
    params: Any
    opt: Any
    ema: Any


def fsdp(mesh, leaf):
    dims = [i for i in range(leaf.ndim) if leaf.shape[i] % mesh.size == 0]
    if leaf.ndim < 2 or not dims:
        return NamedSharding(mesh, P())
    best = max(dims, key=lambda i: leaf.shape[i])
    return NamedSharding(mesh, P(*("fsdp" if i == best else None for i in range(leaf.ndim))))


def state_shardings(mesh, state, split_ema):
    split = jax.tree.map(lambda a: fsdp(mesh, a), state)
    if split_ema:
        return split
    whole = NamedSharding(mesh, P())
    return split._replace(ema=jax.tree.map(lambda _: whole, state.ema))  # FAULT


def build(devices, split_ema):
    mesh = Mesh(np.array(devices), ("fsdp",))
    graph, params = nnx.split(nnx.eval_shape(lambda: DiT(nnx.Rngs(0))))
    tx = optax.adam(1e-4)
    state = TrainState(params, jax.eval_shape(tx.init, params), params)
    shardings = state_shardings(mesh, state, split_ema)
    state = jax.tree.map(lambda a, h: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=h), state, shardings)

    def loss_fn(params, latents, y, t, noise):
        xt = (1 - t)[:, None, None] * latents + t[:, None, None] * noise
        pred = nnx.merge(graph, params)(xt.astype(jnp.bfloat16), 1000 * t, y)
        return jnp.mean((pred.astype(jnp.float32) - (noise - latents)) ** 2)

    def step(state, latents, y, t, noise):
        loss, grads = jax.value_and_grad(loss_fn)(state.params, latents, y, t, noise)
        grads = jax.tree.map(jax.lax.with_sharding_constraint, grads, shardings.params)
        updates, opt = tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: EMA_DECAY * e + (1 - EMA_DECAY) * p, state.ema, params)
        return TrainState(params, opt, ema), loss

    rows = NamedSharding(mesh, P("fsdp"))
    latents = jax.ShapeDtypeStruct((BATCH, TOKENS, PATCH * PATCH * CHANNELS), jnp.float32, sharding=rows)
    y = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows)
    t = jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows)
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None)), (state, latents, y, t, latents)


def make_faulty(devices):
    return build(devices, split_ema=False)


def make_fixed(devices):
    return build(devices, split_ema=True)
