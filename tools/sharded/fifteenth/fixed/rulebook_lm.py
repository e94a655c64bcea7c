# mypy: ignore-errors
"""Fixed."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
LAYERS, D, FF, HEADS, VOCAB, BATCH, SEQ = 6, 512, 2048, 8, 8192, 16, 256

RULES = [
    (r"embed/table$", P("model", "data")),
    (r"attn/(q|k|v)/kernel$", P(None, "data", "model")),
    (r"attn/o/kernel$", P(None, "model", "data")),
    (r"mlp/(up|gate)/kernel$", P(None, "data", "model")),
    (r"mlp/down/kernel$", P(None, "model", "data")),
    (r"head/kernel$", P("data", "model")),
    (r".*", P()),
]


def spec_of(path):
    name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    return next(spec for pattern, spec in RULES if re.search(pattern, name))


def init(key):
    k = iter(jax.random.split(key, 9))
    dense = lambda *s: {"kernel": jax.random.normal(next(k), s) * s[-2] ** -0.5}
    return {
        "embed": {"table": jax.random.normal(next(k), (VOCAB, D)) * 0.02},
        "blocks": {
            "attn": {n: dense(LAYERS, D, D) for n in "qkvo"},
            "mlp": {"up": dense(LAYERS, D, FF), "gate": dense(LAYERS, D, FF), "down": dense(LAYERS, FF, D)},
            "norm1": {"scale": jnp.ones((LAYERS, D))},
            "norm2": {"scale": jnp.ones((LAYERS, D))},
        },
        "head": {"kernel": jnp.zeros((D, VOCAB))},
    }


def norm(x, p):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * p["scale"]


def block(x, p):
    h = norm(x, p["norm1"])
    q, k, v = (jnp.reshape(h @ p["attn"][n]["kernel"], (*h.shape[:2], HEADS, -1)) for n in "qkv")
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ p["attn"]["o"]["kernel"]
    h, m = norm(x, p["norm2"]), p["mlp"]
    x = x + (jax.nn.silu(h @ m["gate"]["kernel"]) * (h @ m["up"]["kernel"])) @ m["down"]["kernel"]
    return x, None


def loss_fn(params, tokens):
    x = params["embed"]["table"][tokens[:, :-1]]
    x, _ = jax.lax.scan(jax.checkpoint(block), x, params["blocks"])
    logits = x @ params["head"]["kernel"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    opt = optax.adamw(3e-4)

    def train_step(params, state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = jax.eval_shape(init, jax.random.key(0))
    state = jax.eval_shape(opt.init, params)
    shardings = jax.tree_util.tree_map_with_path(lambda p, _: NamedSharding(mesh, spec_of(p)), (params, state))
    batch = NamedSharding(mesh, P("data"))
    step = jax.jit(train_step, in_shardings=(*shardings, batch),
                   out_shardings=(*shardings, NamedSharding(mesh, P())), donate_argnums=(0, 1))
    return step, (params, state, jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32))
