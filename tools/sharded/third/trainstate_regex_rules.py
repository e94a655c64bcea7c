# mypy: ignore-errors
"""Fault: optimizer. The rules that shard a flax TrainState are anchored at `params`, so the moments of the optimizer fall through to the replicated default."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
VOCAB, DIM, DEPTH, BATCH, LENGTH = 16384, 768, 1, 8, 256

ANCHORED = [
    (r"^params/.*embedding$", P("tp", "fsdp")),  # FAULT
    (r"^params/.*(wi|query|key|value)/kernel$", P("fsdp", "tp")),  # FAULT
    (r"^params/.*(wo|out)/kernel$", P("tp", "fsdp")),  # FAULT
    (r".*", P()),  # FAULT
]
ANYWHERE = [
    (r"(^|/)embedding$", P("tp", "fsdp")),
    (r"(wi|query|key|value)/kernel$", P("fsdp", "tp")),
    (r"(wo|out)/kernel$", P("tp", "fsdp")),
    (r".*", P()),
]


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.RMSNorm()(x)
        q, k, v = (nn.Dense(DIM, use_bias=False, name=n)(h) for n in ("query", "key", "value"))
        split = lambda a: a.reshape(*a.shape[:2], 12, DIM // 12)
        o = nn.dot_product_attention(split(q), split(k), split(v), mask=nn.make_causal_mask(x[..., 0]))
        x = x + nn.Dense(DIM, use_bias=False, name="out")(o.reshape(x.shape))
        h = nn.gelu(nn.Dense(4 * DIM, use_bias=False, name="wi")(nn.RMSNorm()(x)))
        return x + nn.Dense(DIM, use_bias=False, name="wo")(h)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(VOCAB, DIM)
        x = embed(tokens)
        for _ in range(DEPTH):
            x = nn.remat(Block)()(x)
        return embed.attend(x)


def spec_of(rules, path):
    name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    return next(spec for pattern, spec in rules if re.search(pattern, name))  # FAULT


def create(tokens):
    model = Decoder()
    tx = optax.adamw(3e-4, weight_decay=0.1)
    return TrainState.create(apply_fn=model.apply, params=model.init(jax.random.key(0), tokens)["params"], tx=tx)


def train_step(state, tokens):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def build(devices, rules):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("fsdp", "tp"))
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    shapes = jax.eval_shape(create, jax.ShapeDtypeStruct((1, LENGTH), jnp.int32))
    shardings = jax.tree_util.tree_map_with_path(lambda path, s: NamedSharding(mesh, spec_of(rules, path)), shapes)  # FAULT
    state = jax.tree.map(lambda s, d: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=d), shapes, shardings)
    return jax.jit(train_step, out_shardings=(shardings, None), donate_argnums=0), (state, tokens)


def make_faulty(devices):
    return build(devices, ANCHORED)  # FAULT


def make_fixed(devices):
    return build(devices, ANYWHERE)
