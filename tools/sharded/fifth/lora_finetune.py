# mypy: ignore-errors
"""Fault: replicated. The rules table still has the old names of the MLP matrices, so the frozen
base's MLP weights match no rule and are held whole by every chip."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

D, FF, HEADS, LAYERS, VOCAB, RANK = 1536, 6144, 12, 3, 16384, 16

RULES = [
    (r"embed/table$", P("tensor", "fsdp")),
    (r"attn/(q|k|v)/w$", P("fsdp", "tensor")),
    (r"attn/o/w$", P("tensor", "fsdp")),
    (r"mlp/(wi_0|wi_1)/w$", P("fsdp", "tensor")),  # FAULT
    (r"mlp/wo/w$", P("tensor", "fsdp")),  # FAULT
    (r"lora_a$", P("fsdp", None)),
    (r"lora_b$", P(None, "tensor")),
]
RULES_2 = RULES[:3] + [
    (r"mlp/(gate|up)/w$", P("fsdp", "tensor")),
    (r"mlp/down/w$", P("tensor", "fsdp")),
] + RULES[5:]


def spec_for(rules, path):
    name = "/".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
    for pattern, spec in rules:
        if re.search(pattern, name):
            return spec
    return P()  # FAULT


def base_params():
    def lin(i, o):
        return {"w": jnp.zeros((i, o), jnp.bfloat16)}

    def layer():
        return {
            "norm1": jnp.ones((D,), jnp.bfloat16),
            "norm2": jnp.ones((D,), jnp.bfloat16),
            "attn": {n: lin(D, D) for n in "qkvo"},
            "mlp": {"gate": lin(D, FF), "up": lin(D, FF), "down": lin(FF, D)},
        }

    return {"embed": {"table": jnp.zeros((VOCAB, D), jnp.bfloat16)}, "layers": [layer() for _ in range(LAYERS)]}


def lora_params():
    def ab():
        return {"lora_a": jnp.zeros((D, RANK)), "lora_b": jnp.zeros((RANK, D))}

    return [{"q": ab(), "v": ab()} for _ in range(LAYERS)]


def norm(x, g):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6)).astype(x.dtype) * g


def adapted(x, w, ab):
    return x @ w["w"] + (x @ ab["lora_a"].astype(x.dtype)) @ ab["lora_b"].astype(x.dtype)


@jax.checkpoint
def block(p, ab, x):
    b, t, _ = x.shape
    h = norm(x, p["norm1"])
    q, k, v = adapted(h, p["attn"]["q"], ab["q"]), h @ p["attn"]["k"]["w"], adapted(h, p["attn"]["v"], ab["v"])
    q, k, v = (a.reshape(b, t, HEADS, -1) for a in (q, k, v))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D // HEADS)
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e9)
    a = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s.astype(jnp.float32)).astype(x.dtype), v)
    x = x + a.reshape(b, t, D) @ p["attn"]["o"]["w"]
    h = norm(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["mlp"]["gate"]["w"]) * (h @ p["mlp"]["up"]["w"])) @ p["mlp"]["down"]["w"]


def loss_fn(lora, base, tokens):
    x = base["embed"]["table"][tokens[:, :-1]]
    for p, ab in zip(base["layers"], lora):
        x = block(p, ab, x)
    logits = (x @ base["embed"]["table"].T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def make(devices, rules):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("fsdp", "tensor"))
    opt = optax.adamw(1e-4)

    def place(path, leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec_for(rules, path)))  # FAULT

    base = jax.tree_util.tree_map_with_path(place, jax.eval_shape(base_params))
    lora = jax.tree_util.tree_map_with_path(place, jax.eval_shape(lora_params))
    opt_state = jax.tree_util.tree_map_with_path(place, jax.eval_shape(opt.init, lora))
    tokens = jax.ShapeDtypeStruct((4, 513), jnp.int32, sharding=NamedSharding(mesh, P("fsdp", None)))

    def train_step(lora, opt_state, base, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(lora, base, tokens)
        updates, opt_state = opt.update(grads, opt_state, lora)
        return optax.apply_updates(lora, updates), opt_state, loss

    keep = [jax.tree.map(lambda s: s.sharding, t) for t in (lora, opt_state)]
    fn = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*keep, None))
    return fn, (lora, opt_state, base, tokens)


def make_faulty(devices):
    return make(devices, RULES)


def make_fixed(devices):
    return make(devices, RULES_2)
