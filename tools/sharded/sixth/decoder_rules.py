# mypy: ignore-errors
"""Fault: optimizer. The rules are anchored (re.match), which suits the parameters' paths but not the paths of Adam's moments, that begin with the
place in the optimizer's chain; both moments fall to the catch-all rule and are whole on every chip."""
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as PS

TARGET = "tpu-v5e:2x2"

PARTITION_RULES = [
    (r"embed/embedding", PS("fsdp", None)),
    (r"blocks/(query|key|value|gate|up)/kernel", PS(None, "fsdp", None)),
    (r"blocks/(out|down)/kernel", PS(None, None, "fsdp")),
    (r"head/kernel", PS("fsdp", None)),
    (r".*", PS()),
]


def path_name(path):
    parts = []
    for p in path:
        parts.append(str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))))
    return "/".join(parts)


def match_anchored(pattern, name):
    return re.match(pattern, name)  # FAULT


def match_anywhere(pattern, name):
    return re.search(pattern, name)


def specs_for(tree, matcher):
    def pick(path, leaf):
        if leaf.ndim == 0:
            return PS()
        name = path_name(path)
        return next(spec for pattern, spec in PARTITION_RULES if matcher(pattern, name))

    return jax.tree_util.tree_map_with_path(pick, tree)


class Block(nn.Module):
    dim: int
    heads: int
    ff: int

    @nn.compact
    def __call__(self, x, _):
        def dense(n, name):
            return nn.Dense(n, use_bias=False, dtype=jnp.bfloat16, name=name)

        b, s, _ = x.shape
        h = nn.RMSNorm(dtype=jnp.bfloat16, name="norm1")(x)
        q, k, v = (dense(self.dim, n)(h).reshape(b, s, self.heads, -1) for n in ("query", "key", "value"))
        o = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(self.dim, "out")(o.reshape(b, s, -1))
        h = nn.RMSNorm(dtype=jnp.bfloat16, name="norm2")(x)
        return x + dense(self.dim, "down")(nn.silu(dense(self.ff, "gate")(h)) * dense(self.ff, "up")(h)), None


class Decoder(nn.Module):
    vocab: int = 16_384
    dim: int = 1280
    heads: int = 10
    ff: int = 3584
    depth: int = 2

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocab, self.dim, dtype=jnp.bfloat16, name="embed")(tokens)
        blocks = nn.scan(nn.remat(Block, prevent_cse=False), variable_axes={"params": 0},
                         split_rngs={"params": True}, length=self.depth)
        x, _ = blocks(self.dim, self.heads, self.ff, name="blocks")(x, None)
        x = nn.RMSNorm(dtype=jnp.bfloat16, name="norm")(x)
        return nn.Dense(self.vocab, use_bias=False, dtype=jnp.bfloat16, name="head")(x)


def make_step(model, tx):
    def step(state, tokens):
        def loss_fn(p):
            logits = model.apply({"params": p}, tokens[:, :-1]).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state["params"])
        updates, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "step": state["step"] + 1}, {"loss": loss}

    return step


def build(devices, matcher):
    mesh = Mesh(np.array(devices), ("fsdp",))
    model = Decoder()
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 100, 10_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))

    def init():
        params = model.init(jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
        return params, tx.init(params)

    params, opt = jax.eval_shape(init)
    specs = {"params": specs_for(params, matcher), "opt": specs_for(opt, matcher), "step": PS()}
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, PS))
    state = {"params": params, "opt": opt, "step": jax.ShapeDtypeStruct((), jnp.int32)}
    state = jax.tree.map(lambda a, h: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=h), state, shardings)
    tokens = jax.ShapeDtypeStruct((8, 513), jnp.int32, sharding=NamedSharding(mesh, PS("fsdp")))
    fn = jax.jit(make_step(model, tx), donate_argnums=0, in_shardings=(shardings, tokens.sharding),
                 out_shardings=(shardings, None))
    return fn, (state, tokens)


def make_faulty(devices):
    return build(devices, match_anchored)


def make_fixed(devices):
    return build(devices, match_anywhere)
