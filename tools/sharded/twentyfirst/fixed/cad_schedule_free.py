# mypy: ignore-errors
"""Clean. The second moment and the sequence `z` both take the shardings of the parameters.

Autoregressive generator of CAD sketches (line, arc and constraint tokens), flax nnx, with partition names on
the parameters and schedule-free AdamW instead of a learning rate schedule.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class SketchConfig:
    tokens: int = 8192
    length: int = 512
    dim: int = 768
    heads: int = 8
    layers: int = 4
    batch: int = 32
    moments: tuple = ("mu", "nu", "z")


def split(*names):
    return nnx.with_partitioning(nnx.initializers.lecun_normal(), names)


class Block(nnx.Module):
    def __init__(self, cfg, rngs):
        d = cfg.dim
        self.heads = cfg.heads
        self.norm_a = nnx.RMSNorm(d, rngs=rngs)
        self.norm_f = nnx.RMSNorm(d, rngs=rngs)
        self.qkv = nnx.Linear(d, 3 * d, use_bias=False, kernel_init=split("data", "model"), rngs=rngs)
        self.proj = nnx.Linear(d, d, use_bias=False, kernel_init=split("model", "data"), rngs=rngs)
        self.up = nnx.Linear(d, 4 * d, use_bias=False, kernel_init=split("data", "model"), rngs=rngs)
        self.down = nnx.Linear(4 * d, d, use_bias=False, kernel_init=split("model", "data"), rngs=rngs)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split(self.qkv(self.norm_a(x)).reshape(b, t, self.heads, -1), 3, axis=-1)
        x = x + self.proj(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d))
        return x + self.down(jax.nn.gelu(self.up(self.norm_f(x))))


class SketchModel(nnx.Module):
    def __init__(self, cfg, rngs):
        self.embed = nnx.Embed(cfg.tokens, cfg.dim, embedding_init=split("model", "data"), rngs=rngs)
        self.place = nnx.Embed(cfg.length, cfg.dim, embedding_init=split(None, "data"), rngs=rngs)
        self.blocks = nnx.List([Block(cfg, rngs) for _ in range(cfg.layers)])
        self.head = nnx.Linear(cfg.dim, cfg.tokens, use_bias=False, kernel_init=split("data", "model"), rngs=rngs)

    def __call__(self, tokens, pin):
        x = pin(self.embed(tokens) + self.place(jnp.arange(tokens.shape[1])))
        for block in self.blocks:
            x = pin(nnx.remat(Block.__call__)(block, x))
        return self.head(x)


def specs_of(model_state):
    specs = nnx.to_pure_dict(nnx.get_partition_spec(model_state))
    return jax.tree.map(lambda s: s or P(), specs, is_leaf=lambda s: s is None or isinstance(s, P))


def optimizer_specs(opt_state, specs, moments):
    """The spec of the parameter at the end of a moment's path, none for counters and such."""
    table = {jax.tree_util.keystr(k): s for k, s in jax.tree_util.tree_leaves_with_path(specs)}

    def pick(path, leaf):
        names = [getattr(key, "name", None) for key in path]
        for at, name in enumerate(names):
            if name in moments:
                return table[jax.tree_util.keystr(path[at + 1 :])]
        return P()

    return jax.tree_util.tree_map_with_path(pick, opt_state)


def make_fixed(devices):
    cfg = SketchConfig()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    with nnx.use_eager_sharding(False):
        graph, state = nnx.split(nnx.eval_shape(lambda: SketchModel(cfg, nnx.Rngs(0))))
    params = nnx.to_pure_dict(state)
    specs = specs_of(state)
    tx = optax.contrib.schedule_free_adamw(2e-3, warmup_steps=500, b1=0.95, weight_decay=0.02)
    opt_state = jax.eval_shape(tx.init, params)
    opt_specs = optimizer_specs(opt_state, specs, cfg.moments)
    rows = NamedSharding(mesh, P("data"))

    def named(tree):
        return jax.tree.map(lambda s: NamedSharding(mesh, s), tree, is_leaf=lambda s: isinstance(s, P))

    def loss_fn(params, tokens):
        nnx.replace_by_pure_dict(state, params)
        logits = nnx.merge(graph, state)(tokens[:, :-1], lambda x: jax.lax.with_sharding_constraint(x, rows))
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data", None, "model")))
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def abstract(tree, shardings):
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

    places = named(specs), named(opt_specs)
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.length + 1), jnp.int32, sharding=rows)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*places, None))
    return fn, (abstract(params, places[0]), abstract(opt_state, places[1]), tokens)
