# mypy: ignore-errors
"""Fault: optimizer. The placement rules are matched at the start of a leaf's path; the paths of
the Adam moments start with the optax state, match nothing and are replicated."""
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

GRID = 512  # cells of the reduced gaussian grid, per sample
CHANNELS = 768
VARS = 40
DEPTH = 4
BATCH = 16

# first hit wins; paths look like "blocks[2].up.weight"
RULES = [
    (r"blocks\[\d+\]\.up\.weight", P("shard", None)),
    (r"blocks\[\d+\]\.down\.weight", P(None, "shard")),
    (r"blocks\[\d+\]\.cells\.weight", P("shard", None)),
    (r"(encode|decode)\.weight", P(None, None)),
]


class Mix(eqx.Module):
    cells: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.cells = eqx.nn.Linear(GRID, GRID, use_bias=False, key=k1)
        self.up = eqx.nn.Linear(CHANNELS, 4 * CHANNELS, use_bias=False, key=k2)
        self.down = eqx.nn.Linear(4 * CHANNELS, CHANNELS, use_bias=False, key=k3)
        self.norm = eqx.nn.LayerNorm(CHANNELS)

    def __call__(self, x):  # (GRID, CHANNELS)
        x = x + jax.vmap(self.cells, in_axes=1, out_axes=1)(x)
        h = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norm)(x)))
        return x + jax.vmap(self.down)(h)


class Emulator(eqx.Module):
    encode: eqx.nn.Linear
    decode: eqx.nn.Linear
    blocks: list

    def __init__(self, key):
        ks = jax.random.split(key, DEPTH + 2)
        self.encode = eqx.nn.Linear(VARS, CHANNELS, use_bias=False, key=ks[0])
        self.decode = eqx.nn.Linear(CHANNELS, VARS, use_bias=False, key=ks[1])
        self.blocks = [Mix(k) for k in ks[2:]]

    def __call__(self, x):
        h = jax.vmap(self.encode)(x)
        for block in self.blocks:
            h = jax.checkpoint(lambda b, y: b(y))(block, h)
        return x + jax.vmap(self.decode)(h)


def place(tree, mesh):
    """Attach a sharding from RULES to each leaf (replicated when there is no rule for it)."""

    def one(path, leaf):
        name = jax.tree_util.keystr(path).lstrip(".")
        spec = next((s for pattern, s in RULES if re.match(pattern, name)), P())  # FAULT
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(one, tree)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("shard",))
    tx = optax.adamw(3e-4, weight_decay=0.05)
    model = eqx.filter_eval_shape(Emulator, jax.random.key(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def loss_fn(params, now, later):
        pred = jax.vmap(eqx.combine(params, static))(now)
        return jnp.mean((pred - later) ** 2)

    def update(params, opt_state, now, later):
        loss, grads = jax.value_and_grad(loss_fn)(params, now, later)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params_in = place(params, mesh)
    opt_in = place(jax.eval_shape(tx.init, params), mesh)  # FAULT
    fields = jax.ShapeDtypeStruct((BATCH, GRID, VARS), jnp.float32, sharding=NamedSharding(mesh, P("shard")))
    shardings = jax.tree.map(lambda a: a.sharding, (params_in, opt_in))
    fn = jax.jit(update, out_shardings=(*shardings, NamedSharding(mesh, P())), donate_argnums=(0, 1))
    return fn, (params_in, opt_in, fields, fields)
