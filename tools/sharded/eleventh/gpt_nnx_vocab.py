# mypy: ignore-errors
"""Fault: dropped. The helper leaves out axes that do not divide a dimension; the vocabulary is 50257,
so that the table, its moments and the logits silently stay whole along the model axis."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    vocab: int = 50257  # FAULT
    width: int = 256
    heads: int = 8
    depth: int = 2
    context: int = 256
    batch: int = 16


def fit(mesh, shape, spec):
    """Keep of `spec` the axes that divide the dimension they are put on."""
    parts = []
    for size, axis in zip(shape, tuple(spec) + (None,) * len(shape)):
        parts.append(axis if axis is not None and size % mesh.shape[axis] == 0 else None)
    return NamedSharding(mesh, P(*parts))


class Block(nnx.Module):
    def __init__(self, cfg, rngs):
        d = cfg.width
        self.heads = cfg.heads
        self.ln1, self.ln2 = nnx.LayerNorm(d, rngs=rngs), nnx.LayerNorm(d, rngs=rngs)
        self.qkv = nnx.Linear(d, 3 * d, use_bias=False, rngs=rngs)
        self.proj = nnx.Linear(d, d, use_bias=False, rngs=rngs)
        self.fc = nnx.Linear(d, 4 * d, use_bias=False, rngs=rngs)
        self.fc_out = nnx.Linear(4 * d, d, use_bias=False, rngs=rngs)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split(self.qkv(self.ln1(x)), 3, axis=-1)
        q, k, v = (a.reshape(b, t, self.heads, -1) for a in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        x = x + self.proj(y)
        return x + self.fc_out(nnx.gelu(self.fc(self.ln2(x))))


class GPT(nnx.Module):
    def __init__(self, cfg, rngs):
        self.wte = nnx.Embed(cfg.vocab, cfg.width, rngs=rngs)
        self.blocks = nnx.List([Block(cfg, rngs) for _ in range(cfg.depth)])

    def __call__(self, ids, mesh):
        x = self.wte(ids)
        x = jax.lax.with_sharding_constraint(x, fit(mesh, x.shape, P("data", None, None)))
        for block in self.blocks:
            x = block(x)
        logits = self.wte.attend(x)
        return jax.lax.with_sharding_constraint(logits, fit(mesh, logits.shape, P("data", None, "model")))  # FAULT


PARAM_AXES = {
    "embedding": P("model", None),  # FAULT
    "qkv": P(None, "model"), "proj": P("model", None),
    "fc": P(None, "model"), "fc_out": P("model", None),
}


def with_layout(mesh, tree):
    def put(path, leaf):
        keys = [str(getattr(k, "key", getattr(k, "name", ""))) for k in path]
        spec = next((PARAM_AXES[k] for k in reversed(keys) if k in PARAM_AXES), P())
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=fit(mesh, leaf.shape, spec))

    return jax.tree_util.tree_map_with_path(put, tree)


def make_faulty(devices):
    cfg = GPTConfig()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    graphdef, state = nnx.split(nnx.eval_shape(lambda: GPT(cfg, nnx.Rngs(0))))
    params = with_layout(mesh, nnx.to_pure_dict(state))
    tx = optax.adam(2.5e-4)
    moments = with_layout(mesh, jax.eval_shape(tx.init, params))

    def loss_fn(params, ids):
        live = nnx.State(state)
        nnx.replace_by_pure_dict(live, params)
        logits = nnx.merge(graphdef, live)(ids[:, :-1], mesh)
        return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

    def train(params, moments, ids):
        loss, grads = jax.value_and_grad(loss_fn)(params, ids)
        updates, moments = tx.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    outs = jax.tree.map(lambda s: s.sharding, (params, moments))
    ids = jax.ShapeDtypeStruct((cfg.batch, cfg.context + 1), jnp.int32, sharding=fit(mesh, (cfg.batch,), P("data")))
    return jax.jit(train, donate_argnums=(0, 1), out_shardings=(*outs, None)), (params, moments, ids)
