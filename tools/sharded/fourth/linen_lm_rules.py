# mypy: ignore-errors
"""Fault: optimizer. The rule table is anchored at the start of the path, so it finds the parameters but not the same
names below opt_state, and the Adam moments fall through to replicated."""
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, LAYERS, HEADS, SEQ, BATCH = 16384, 768, 3, 12, 256, 16

RULES = (
    (r"params/embed/embedding", P("model", "data")),
    (r"params/layer_\d+/(query|key|value)/kernel", P("data", "model", None)),
    (r"params/layer_\d+/out/kernel", P("model", None, "data")),
    (r"params/layer_\d+/up/kernel", P("data", "model")),
    (r"params/layer_\d+/down/kernel", P("model", "data")),
    (r".*", P()),
)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x):
        d = DIM // HEADS
        h = nn.LayerNorm(use_bias=False, name="ln_attn")(x)
        q = nn.DenseGeneral((HEADS, d), use_bias=False, name="query", dtype=jnp.bfloat16)(h)
        k = nn.DenseGeneral((HEADS, d), use_bias=False, name="key", dtype=jnp.bfloat16)(h)
        v = nn.DenseGeneral((HEADS, d), use_bias=False, name="value", dtype=jnp.bfloat16)(h)
        mask = nn.make_causal_mask(jnp.zeros(x.shape[:2]))
        y = nn.dot_product_attention(q, k, v, mask=mask)
        x = x + nn.DenseGeneral(DIM, axis=(-2, -1), use_bias=False, name="out", dtype=jnp.bfloat16)(y)
        h = nn.LayerNorm(use_bias=False, name="ln_mlp")(x)
        h = nn.gelu(nn.Dense(4 * DIM, use_bias=False, name="up", dtype=jnp.bfloat16)(h))
        return x + nn.Dense(DIM, use_bias=False, name="down", dtype=jnp.bfloat16)(h)


class LM(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        rows = NamedSharding(self.mesh, P("data", None, None))
        embed = nn.Embed(VOCAB, DIM, name="embed", dtype=jnp.bfloat16)
        x = jax.lax.with_sharding_constraint(embed(tokens), rows)
        for i in range(LAYERS):
            x = jax.lax.with_sharding_constraint(nn.remat(Layer)(name=f"layer_{i}")(x), rows)
        logits = embed.attend(nn.LayerNorm(use_bias=False, name="ln_f")(x))
        return jax.lax.with_sharding_constraint(logits, NamedSharding(self.mesh, P("data", None, "model")))


def leaf_name(path):
    def part(k):
        for attr in ("key", "name", "idx"):
            if hasattr(k, attr):
                return str(getattr(k, attr))
        return str(k)

    return "/".join(part(k) for k in path)


def match_start(pattern, name):
    return re.match(pattern, name)  # FAULT


def match_anywhere(pattern, name):
    return re.search(pattern, name)


def state_shardings(state, mesh, match):
    def choose(path, leaf):
        name = leaf_name(path).replace("mu/", "mu/params/").replace("nu/", "nu/params/")
        for pattern, spec in RULES:
            if leaf.ndim and match(pattern, name):
                return NamedSharding(mesh, spec)  # FAULT
        return NamedSharding(mesh, P())

    return jax.tree_util.tree_map_with_path(choose, state)


def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["inputs"]).astype(jnp.float32)
        return optax.softmax_cross_entropy(logits, jax.nn.one_hot(batch["targets"], VOCAB)).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss, "grad_norm": optax.global_norm(grads)}


def build(devices, match):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    model = LM(mesh)
    tx = optax.adamw(optax.cosine_decay_schedule(3e-4, 10_000), b2=0.95)

    def init(key):
        params = model.init(key, jnp.zeros((BATCH, SEQ), jnp.int32))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    state = jax.eval_shape(init, jax.random.key(0))
    shardings = state_shardings(state, mesh, match)  # FAULT
    state = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, shardings)  # FAULT
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    step = jax.jit(train_step, donate_argnums=(0,), out_shardings=(shardings, NamedSharding(mesh, P())))
    return step, (state, {"inputs": tokens, "targets": tokens})


def make_faulty(devices):
    return build(devices, match_start)  # FAULT


def make_fixed(devices):
    return build(devices, match_anywhere)
