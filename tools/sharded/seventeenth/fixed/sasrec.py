# mypy: ignore-errors
"""Clean. Sequential recommender; the item table is padded to a multiple of the devices that split its rows.
"""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RULES = (
    ("batch", "data"),
    ("items", ("data", "model")),
    ("heads", "model"),
    ("mlp", "model"),
    ("embed", None),
    ("time", None),
)


@dataclass(frozen=True)
class RecConfig:
    num_items: int = 300_000
    dim: int = 128
    heads: int = 4
    layers: int = 4
    history: int = 128
    batch: int = 256
    negatives: int = 1024


def table_rows(cfg: RecConfig) -> int:
    """Ids run from 1 to num_items; row 0 is for padding."""
    return -(-(cfg.num_items + 1) // 512) * 512


def weight(module, name, shape, axes):
    fn = nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)
    return module.param(name, fn, shape)


class SelfAttention(nn.Module):
    cfg: RecConfig

    @nn.compact
    def __call__(self, x, keep):
        d, h = self.cfg.dim, self.cfg.heads
        qkv = weight(self, "qkv", (d, 3, h, d // h), ("embed", None, "heads", None))
        out = weight(self, "out", (h, d // h, d), ("heads", None, "embed"))
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, qkv), 2, 0)
        scores = jnp.einsum("bqhk,bthk->bhqt", q, k) * (d // h) ** -0.5
        probs = jax.nn.softmax(jnp.where(keep, scores, -1e9), axis=-1)
        return jnp.einsum("bhqt,bthk,hkd->bqd", probs, v, out)


class FeedForward(nn.Module):
    cfg: RecConfig

    @nn.compact
    def __call__(self, x):
        d = self.cfg.dim
        h = jax.nn.relu(x @ weight(self, "up", (d, 4 * d), ("embed", "mlp")))
        h = nn.with_logical_constraint(h, ("batch", "time", "mlp"))
        return h @ weight(self, "down", (4 * d, d), ("mlp", "embed"))


class SASRec(nn.Module):
    cfg: RecConfig

    def setup(self):
        cfg = self.cfg
        self.table = weight(self, "table", (table_rows(cfg), cfg.dim), ("items", "embed"))
        self.position = weight(self, "position", (cfg.history, cfg.dim), ("time", "embed"))
        self.attn = [SelfAttention(cfg) for _ in range(cfg.layers)]
        self.ffn = [FeedForward(cfg) for _ in range(cfg.layers)]
        self.norms = [nn.LayerNorm(use_bias=False) for _ in range(2 * cfg.layers)]

    def __call__(self, history, positives, negatives):
        x = jnp.take(self.table, history, axis=0) + self.position
        x = nn.with_logical_constraint(x, ("batch", "time", "embed"))
        causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        keep = causal & (history > 0)[:, None, None, :]
        for i in range(self.cfg.layers):
            x = x + self.attn[i](self.norms[2 * i](x), keep)
            x = x + self.ffn[i](self.norms[2 * i + 1](x))
            x = nn.with_logical_constraint(x, ("batch", "time", "embed"))
        good = jnp.sum(x * jnp.take(self.table, positives, axis=0), -1)
        bad = x @ jnp.take(self.table, negatives, axis=0).T
        return good, bad


def fitting(mesh, spec, shape):
    """Mesh axes stay only where they divide the dimension."""
    spec = tuple(spec) + (None,) * (len(shape) - len(spec))
    ways = [np.prod([mesh.shape[a] for a in jax.tree.leaves(axes)], dtype=int) for axes in spec]
    kept = [axes if n % w == 0 else None for axes, n, w in zip(spec, shape, ways)]
    return NamedSharding(mesh, P(*kept))


def abstract(mesh, boxed):
    specs = nn.logical_to_mesh(nn.get_partition_spec(boxed), RULES)
    return jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=fitting(mesh, s, a.shape)),
        nn.meta.unbox(boxed),
        specs,
    )


def make_fixed(devices):
    cfg = RecConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    model, tx = SASRec(cfg), optax.adam(1e-3, b2=0.98)

    rows = NamedSharding(mesh, P("data"))
    hist = jax.ShapeDtypeStruct((cfg.batch, cfg.history), jnp.int32, sharding=rows)
    negs = jax.ShapeDtypeStruct((cfg.negatives,), jnp.int32, sharding=NamedSharding(mesh, P()))
    boxed = jax.eval_shape(model.init, jax.random.key(0), hist, hist, negs)
    params, state = abstract(mesh, boxed), abstract(mesh, jax.eval_shape(tx.init, boxed))

    def loss_fn(params, history, positives, negatives):
        with mesh, nn.logical_axis_rules(RULES):
            good, bad = model.apply(params, history, positives, negatives)
        loss = jax.nn.logsumexp(jnp.concatenate([good[..., None], bad], -1), -1) - good
        return jnp.mean(jnp.where(history > 0, loss, 0.0))

    def train_step(params, state, history, positives, negatives):
        loss, grads = jax.value_and_grad(loss_fn)(params, history, positives, negatives)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    outs = jax.tree.map(lambda a: a.sharding, (params, state))
    fn = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*outs, NamedSharding(mesh, P())))
    return fn, (params, state, hist, hist, negs)
