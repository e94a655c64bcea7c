# mypy: ignore-errors
"""Fault: dropped. The tied embedding asks for its vocabulary to be split over "tp", but 50257 does not
divide and the fitting helper silently leaves it whole: the table, its gradient, both Adam moments and
the logits that follow from it are twice as large as they need be.

GPT-2 style language model in flax linen; a small helper fits path-based specs to the shapes.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB = 50257  # FAULT
CONTEXT = 256
WIDTH = 768
HEADS = 12
DEPTH = 6
BATCH = 4

SPECS = {
    "wte": P("tp", "fsdp"),  # FAULT
    "wpe": P(None, "fsdp"),
    "c_attn": P("fsdp", "tp"),
    "c_proj": P("tp", "fsdp"),
    "c_fc": P("fsdp", "tp"),
    "c_out": P("tp", "fsdp"),
}


def fit(mesh, spec, shape):
    """Make `spec` legal for `shape`: axes that do not divide their dimension are left out."""
    axes = []
    for size, axis in zip(shape, tuple(spec) + (None,) * len(shape)):
        axes.append(axis if axis and size % mesh.shape[axis] == 0 else None)  # FAULT
    return NamedSharding(mesh, P(*axes))


def constrain(mesh, x, *axes):
    return jax.lax.with_sharding_constraint(x, fit(mesh, P(*axes), x.shape))


class CausalSelfAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        qkv = nn.Dense(3 * d, name="c_attn", dtype=jnp.bfloat16)(x)
        q, k, v = (a.reshape(b, t, HEADS, d // HEADS) for a in jnp.split(qkv, 3, axis=-1))
        att = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // HEADS) ** -0.5
        att = jnp.where(jnp.tril(jnp.ones((t, t), bool)), att, -1e9)
        att = nn.softmax(att.astype(jnp.float32)).astype(x.dtype)
        y = jnp.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, t, d)
        return nn.Dense(d, name="c_proj", dtype=jnp.bfloat16)(y)


class Block(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x, _):
        x = x + CausalSelfAttention(name="attn")(nn.LayerNorm(name="ln_1", dtype=jnp.bfloat16)(x))
        h = nn.Dense(4 * WIDTH, name="c_fc", dtype=jnp.bfloat16)(nn.LayerNorm(name="ln_2", dtype=jnp.bfloat16)(x))
        h = constrain(self.mesh, nn.gelu(h), "fsdp", None, "tp")
        x = x + nn.Dense(WIDTH, name="c_out", dtype=jnp.bfloat16)(h)
        return constrain(self.mesh, x, "fsdp", None, None), None


class GPT2(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        wte = self.param("wte", nn.initializers.normal(0.02), (VOCAB, WIDTH))
        wpe = self.param("wpe", nn.initializers.normal(0.01), (CONTEXT, WIDTH))
        x = (wte[tokens] + wpe[: tokens.shape[1]]).astype(jnp.bfloat16)
        x = constrain(self.mesh, x, "fsdp", None, None)
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=DEPTH,
        )
        x, _ = layers(self.mesh, name="h")(x, None)
        x = nn.LayerNorm(name="ln_f", dtype=jnp.bfloat16)(x)
        logits = x @ wte.T.astype(jnp.bfloat16)
        return logits.astype(jnp.float32)


def shardings_for(mesh, tree):
    """Specs by the innermost module or parameter name known to the table, fitted to each leaf."""

    def leaf(path, x):
        names = [getattr(k, "key", getattr(k, "name", None)) for k in path]
        for name in reversed(names):
            if name in SPECS and names[-1] != "bias":
                stacked = (None,) * (x.ndim - len(SPECS[name]))
                return fit(mesh, P(*stacked, *SPECS[name]), x.shape)
        return NamedSharding(mesh, P())

    return jax.tree_util.tree_map_with_path(leaf, tree)


def next_token_loss(model, params, tokens):
    logits = model.apply({"params": params}, tokens)[:, :-1]
    gold = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - gold)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("fsdp", "tp"))
    model = GPT2(mesh)
    tx = optax.adamw(3e-4, b2=0.95, weight_decay=0.1)
    probe = jax.ShapeDtypeStruct((BATCH, CONTEXT), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), probe)["params"]
    opt_state = jax.eval_shape(tx.init, params)
    p_sh, o_sh = shardings_for(mesh, params), shardings_for(mesh, opt_state)

    def step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(lambda p: next_token_loss(model, p, tokens))(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def put(x, s):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)

    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(p_sh, o_sh, NamedSharding(mesh, P())))
    tokens = put(probe, NamedSharding(mesh, P("fsdp")))
    return fn, (jax.tree.map(put, params, p_sh), jax.tree.map(put, opt_state, o_sh), tokens)
