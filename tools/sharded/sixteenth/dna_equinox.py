# mypy: ignore-errors
"""Fault: optimizer. The rules are matched at the start of a leaf's path; the moments' paths start
with their place in optax's state, so no rule is found for them and each chip holds them whole.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BASES, TRACKS, WINDOW, POOL = 4, 512, 8192, 16
WIDTH, HEADS, DEPTH, BATCH = 768, 12, 6, 16

RULES = (
    (r"\.stem\.weight", P("fsdp")),
    (r"\.positions", P("fsdp")),
    (r"\.blocks\.attention\.\w+_proj\.weight", P(None, "fsdp")),
    (r"\.blocks\.(up|down)\.weight", P(None, "fsdp")),
    (r"\.head\.weight", P("fsdp")),
)


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=k1)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=k2)
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=k3)

    def __call__(self, x):
        h = jax.vmap(self.norm1)(x)
        x += self.attention(h, h, h)
        h = jax.vmap(self.norm2)(x)
        return x + jax.vmap(lambda t: self.down(jax.nn.gelu(self.up(t))))(h)


class TrackModel(eqx.Module):
    """Predicts read coverage of many assays along a window of DNA."""

    stem: eqx.nn.Conv1d
    positions: jax.Array
    blocks: Block  # every leaf with a leading axis of depth
    head: eqx.nn.Linear

    def __init__(self, key):
        k_stem, k_pos, k_head, k_blocks = jax.random.split(key, 4)
        self.stem = eqx.nn.Conv1d(BASES, WIDTH, 2 * POOL, stride=POOL, padding="SAME", key=k_stem)
        self.positions = 0.02 * jax.random.normal(k_pos, (WINDOW // POOL, WIDTH))
        self.blocks = eqx.filter_vmap(Block)(jax.random.split(k_blocks, DEPTH))
        self.head = eqx.nn.Linear(WIDTH, TRACKS, key=k_head)

    def __call__(self, dna, rows):
        x = rows(jax.vmap(self.stem)(dna).swapaxes(1, 2) + self.positions)
        stacked, rest = eqx.partition(self.blocks, eqx.is_array)

        @jax.checkpoint
        def body(x, leaves):
            return rows(jax.vmap(eqx.combine(leaves, rest))(x)), None

        x, _ = jax.lax.scan(body, x, stacked)
        return jax.nn.softplus(jax.vmap(jax.vmap(self.head))(x).astype(jnp.float32))


def spec_of(path):
    name = jax.tree_util.keystr(path)
    for pattern, spec in RULES:
        if re.match(pattern, name):  # FAULT
            return spec
    return P()  # scales, biases, counters


def place(mesh, tree):
    def one(path, leaf):
        sharding = NamedSharding(mesh, spec_of(path))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map_with_path(one, tree)


def poisson(predicted, counts):
    return jnp.mean(predicted - counts * jnp.log(predicted + 1e-6))


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    by_row = NamedSharding(mesh, P("fsdp"))
    tx = optax.chain(optax.clip_by_global_norm(0.2), optax.adamw(5e-4, weight_decay=1e-2))

    model = eqx.filter_eval_shape(TrackModel, jax.random.key(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    params = place(mesh, params)
    opt_state = place(mesh, jax.eval_shape(tx.init, params))  # FAULT

    def rows(x):
        return jax.lax.with_sharding_constraint(x, by_row)

    def loss_fn(params, dna, counts):
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        return poisson(eqx.combine(half, static)(dna, rows), counts)

    def step(params, opt_state, dna, counts):
        loss, grads = jax.value_and_grad(loss_fn)(params, dna, counts)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    dna = jax.ShapeDtypeStruct((BATCH, BASES, WINDOW), jnp.bfloat16, sharding=by_row)
    counts = jax.ShapeDtypeStruct((BATCH, WINDOW // POOL, TRACKS), jnp.float32, sharding=by_row)
    kept = jax.tree.map(lambda a: a.sharding, (params, opt_state))
    out = (*kept, NamedSharding(mesh, P()))
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=out)
    return jitted, (params, opt_state, dna, counts)
