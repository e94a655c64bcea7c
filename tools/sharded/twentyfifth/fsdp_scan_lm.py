# mypy: ignore-errors
"""Fault: gathered. The layer is rematerialised, but its weights are gathered outside the checkpointed function, so
the whole weights are inputs of the checkpoint and every layer's are kept from the forward to the backward pass.

Pretraining step of a decoder-only language model, fully sharded over eight devices by hand: shard_map, a scan over
layers, all_gather of each layer's weights, AdamW on the shards.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Config:
    layers: int = 12
    dim: int = 1024
    hidden: int = 4096
    heads: int = 8
    vocab: int = 8_192
    length: int = 1024
    batch: int = 8


SPECS = {
    "embed": P("fsdp", None),
    "layers": {
        "qkv": P(None, "fsdp", None),
        "out": P(None, "fsdp", None),
        "up": P(None, "fsdp", None),
        "down": P(None, "fsdp", None),
    },
}


def shapes(c):
    f32 = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    return {
        "embed": f32(c.vocab, c.dim),
        "layers": {
            "qkv": f32(c.layers, c.dim, 3 * c.dim),
            "out": f32(c.layers, c.dim, c.dim),
            "up": f32(c.layers, c.dim, c.hidden),
            "down": f32(c.layers, c.hidden, c.dim),
        },
    }


def gather(shard):
    return lax.all_gather(shard, "fsdp", axis=0, tiled=True)


def norm(x):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def attention(c, weights, h):
    b, t, _ = h.shape
    q, k, v = jnp.split((norm(h) @ weights["qkv"]).reshape(b, t, c.heads, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(b, t, c.dim) @ weights["out"]


def apply_layer(c, weights, h):
    h = h + attention(c, weights, h)
    return h + jax.nn.gelu(norm(h) @ weights["up"]) @ weights["down"]


def run_layers(c, layers, h):
    block = jax.checkpoint(lambda w, x: apply_layer(c, w, x), prevent_cse=False)  # FAULT

    def body(x, shards):
        return block(jax.tree.map(gather, shards), x), None  # FAULT

    h, _ = lax.scan(body, h, layers)
    return h


@jax.checkpoint
def embed(table, tokens):
    return gather(table)[tokens]


@jax.checkpoint
def head_loss(table, h, targets):
    logits = norm(h) @ gather(table).T
    label = jnp.sum(jax.nn.one_hot(targets, logits.shape[-1]) * logits, axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - label)


def make_faulty(devices):
    c = Config()
    mesh = Mesh(np.asarray(devices).reshape(8), ("fsdp",))
    optimizer = optax.adamw(3e-4, weight_decay=0.1)

    def local_loss(params, tokens):
        h = embed(params["embed"], tokens[:, :-1])
        h = run_layers(c, params["layers"], h)
        return lax.pmean(head_loss(params["embed"], h, tokens[:, 1:]), "fsdp")

    loss_fn = jax.shard_map(local_loss, mesh=mesh, in_specs=(SPECS, P("fsdp", None)), out_specs=P())

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def named(spec):
        return NamedSharding(mesh, spec)

    params = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=named(s)), shapes(c), SPECS)
    opt_state = optax.tree_map_params(
        optimizer, lambda x, p: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=p.sharding),
        jax.eval_shape(optimizer.init, params), params,
        transform_non_params=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=named(P())))
    tokens = jax.ShapeDtypeStruct((c.batch, c.length + 1), jnp.int32, sharding=named(P("fsdp", None)))
    where = jax.tree.map(lambda x: x.sharding, (params, opt_state))
    step = jax.jit(train_step, out_shardings=(*where, named(P())), donate_argnums=(0, 1))
    return step, (params, opt_state, tokens)
