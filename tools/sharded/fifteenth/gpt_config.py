# mypy: ignore-errors
"""Fault: dropped. 50257 tokens do not divide by the tensor axis, so `fit` gives that axis up for the embedding: the table, its
moments and the logits are divided over a quarter of the chips that they could be."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class GPT:
    vocab: int = 50257  # FAULT
    layers: int = 4
    width: int = 768
    heads: int = 12
    context: int = 512
    batch: int = 16
    mesh_shape: tuple = (4, 4)
    mesh_axes: tuple = ("fsdp", "tensor")


LOGICAL = {"vocab": "tensor", "embed": "fsdp", "heads": "tensor", "ff": "tensor", "batch": "fsdp", "layers": None, "position": None, "head_dim": None, "qkv": None}


def fit(mesh, shape, names):
    """The spec of the logical names, less the mesh axes that do not divide."""
    axes = [LOGICAL[n] for n in names]
    return PartitionSpec(*(a if a and size % mesh.shape[a] == 0 else None for size, a in zip(shape, axes)))


def table(c):
    dim = c.width // c.heads
    return {
        "tokens": ((c.vocab, c.width), ("vocab", "embed")),  # FAULT
        "positions": ((c.context, c.width), ("position", "embed")),
        "attention": ((c.layers, c.width, 3, c.heads, dim), ("layers", "embed", "qkv", "heads", "head_dim")),
        "project": ((c.layers, c.heads, dim, c.width), ("layers", "heads", "head_dim", "embed")),
        "expand": ((c.layers, c.width, 4 * c.width), ("layers", "embed", "ff")),
        "contract": ((c.layers, 4 * c.width, c.width), ("layers", "ff", "embed")),
    }


class Trainer:
    def __init__(self, config, devices):
        self.c = config
        self.mesh = Mesh(np.array(devices).reshape(config.mesh_shape), config.mesh_axes)
        self.opt = optax.adam(optax.cosine_decay_schedule(6e-4, 10_000))

    def shard(self, x, *names):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, fit(self.mesh, x.shape, names)))

    def block(self, x, w):
        q, k, v = jnp.einsum("bsd,dthk->tbshk", jax.nn.standardize(x), w["attention"].astype(x.dtype))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("bshk,hkd->bsd", mixed, w["project"].astype(x.dtype))
        h = self.shard(jax.nn.gelu(jax.nn.standardize(x) @ w["expand"].astype(x.dtype)), "batch", "position", "ff")
        return self.shard(x + h @ w["contract"].astype(x.dtype), "batch", "position", "layers"), None

    def loss(self, params, tokens):
        embedding = params["tokens"].astype(jnp.bfloat16)
        x = embedding[tokens[:, :-1]] + params["positions"].astype(jnp.bfloat16)
        stacked = {k: params[k] for k in ("attention", "project", "expand", "contract")}
        x, _ = jax.lax.scan(jax.checkpoint(self.block), self.shard(x, "batch", "position", "layers"), stacked)
        logits = self.shard(jax.nn.standardize(x) @ embedding.T, "batch", "position", "vocab")
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), tokens[:, 1:]).mean()

    def step(self, params, state, tokens):
        loss, grads = jax.value_and_grad(self.loss)(params, tokens)
        updates, state = self.opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def arguments(self):
        make = lambda shape, spec, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, spec))
        params = {k: make(s, fit(self.mesh, s, n)) for k, (s, n) in table(self.c).items()}
        state = optax.tree_map_params(self.opt, lambda _, p: p, jax.eval_shape(self.opt.init, params), params,
                                      transform_non_params=lambda x: make(x.shape, PartitionSpec(), x.dtype))
        return params, state, make((self.c.batch, self.c.context + 1), PartitionSpec("fsdp"), jnp.int32)


def make_faulty(devices):
    trainer = Trainer(GPT(), devices)
    args = trainer.arguments()
    out = jax.tree.map(lambda x: x.sharding, args[:2])
    return jax.jit(trainer.step, donate_argnums=(0, 1), out_shardings=(*out, None)), args
