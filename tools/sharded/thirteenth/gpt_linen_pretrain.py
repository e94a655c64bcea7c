# mypy: ignore-errors
"""Fault: dropped. The rule table says "ff" where the modules say "mlp", so no rule matches the feed-forward kernels and their moments: they are whole along "tensor" (4 times too large)."""
import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

RULES = (
    ("batch", "data"),
    ("act_seq", None),
    ("act_embed", None),
    ("embed", "data"),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("kv", None),
    ("ff", "tensor"),  # FAULT
    ("norm", None),
)


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    vocab: int = 16384
    dim: int = 1024
    mlp: int = 4096
    heads: int = 16
    layers: int = 6
    seq: int = 512
    batch: int = 16


def part(*axes, scale=0.02):
    return nn.with_logical_partitioning(nn.initializers.normal(scale), axes)


class Block(nn.Module):
    cfg: GPTConfig
    mesh: Mesh

    def act(self, x, *axes):
        return nn.with_logical_constraint(x, axes, rules=RULES, mesh=self.mesh)

    @nn.compact
    def __call__(self, x):
        c = self.cfg
        hd = c.dim // c.heads
        norm = lambda name: nn.RMSNorm(
            dtype=jnp.bfloat16, name=name, scale_init=nn.with_logical_partitioning(nn.initializers.ones, ("norm",)))
        y = norm("ln1")(x)
        qkv = nn.DenseGeneral((3, c.heads, hd), use_bias=False, dtype=jnp.bfloat16, name="qkv",
                              kernel_init=part("embed", None, "heads", "kv"))(y)
        q, k, v = (self.act(qkv[:, :, i], "batch", "act_seq", "heads", "kv") for i in range(3))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / np.sqrt(hd)
        s = jnp.where(jnp.tril(jnp.ones((c.seq, c.seq), bool)), s, -1e9)
        o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(jnp.bfloat16), v)
        o = nn.DenseGeneral(c.dim, axis=(-2, -1), use_bias=False, dtype=jnp.bfloat16, name="out",
                            kernel_init=part("heads", "kv", "embed"))(o)
        x = self.act(x + o, "batch", "act_seq", "act_embed")
        y = norm("ln2")(x)
        h = nn.Dense(c.mlp, use_bias=False, dtype=jnp.bfloat16, kernel_init=part("embed", "mlp"), name="wi")(y)  # FAULT
        h = nn.Dense(c.dim, use_bias=False, dtype=jnp.bfloat16, kernel_init=part("mlp", "embed"), name="wo")(nn.gelu(h))  # FAULT
        return self.act(x + h, "batch", "act_seq", "act_embed")


class GPT(nn.Module):
    cfg: GPTConfig
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        c = self.cfg
        table = self.param("wte", part("vocab", "embed"), (c.vocab, c.dim))
        x = jnp.take(table.astype(jnp.bfloat16), tokens, axis=0)
        x = nn.with_logical_constraint(x, ("batch", "act_seq", "act_embed"), rules=RULES, mesh=self.mesh)
        for i in range(c.layers):
            x = nn.remat(Block)(c, self.mesh, name=f"h{i}")(x)
        logits = jnp.einsum("bsd,vd->bsv", x, table.astype(jnp.bfloat16))
        return nn.with_logical_constraint(logits, ("batch", "act_seq", "vocab"), rules=RULES, mesh=self.mesh)


def train_step(state, tokens):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens).astype(jnp.float32)
        picked = jnp.sum(jax.nn.one_hot(jnp.roll(tokens, -1, 1), logits.shape[-1]) * logits, -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "tensor"))
    cfg = GPTConfig()
    model = GPT(cfg, mesh)
    tx = optax.adamw(3e-4)

    def init(key):
        params = model.init(key, jnp.zeros((cfg.batch, cfg.seq), jnp.int32))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    abstract = jax.eval_shape(init, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, RULES)
    data = NamedSharding(mesh, P("data"))
    step = jax.jit(train_step, in_shardings=(shardings, data), out_shardings=(shardings, NamedSharding(mesh, P())),
                   donate_argnums=0)
    return step, (nn.unbox(abstract), jax.ShapeDtypeStruct((cfg.batch, cfg.seq), jnp.int32))
