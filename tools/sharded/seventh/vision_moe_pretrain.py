# mypy: ignore-errors
"""Fault: dropped. The rule for the expert weights is written for another spelling of the parameter path, never matches,
and the experts (weights, gradients and momentum) fall through to the replicated default."""
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

HP = dict(layers=3, d=1024, ff=2048, experts=8, heads=8, classes=1024, patch=768, batch=32, seq=256, slots=32)

RULES = [
    (r"(patchify|head)/kernel$", P("data", "model")),
    (r"attn/(q|k|v)$", P(None, "data", "model")),
    (r"attn/o$", P(None, "model", "data")),
    (r"moe/router$", P()),
    (r"moe/experts/(wi|wo)$", P(None, "model", "data", None)),  # FAULT
    (r"norm", P()),
]
RULES_PATCHED = [(r"moe/expert_(wi|wo)$", s) if "experts" in r else (r, s) for r, s in RULES]


def param_shapes():
    L, d, f, e = HP["layers"], HP["d"], HP["ff"], HP["experts"]
    return {
        "patchify": {"kernel": (HP["patch"], d)},
        "head": {"kernel": (d, HP["classes"])},
        "attn": {n: (L, d, d) for n in "qkvo"},
        "moe": {"router": (L, d, e * HP["slots"]), "expert_wi": (L, e, d, f), "expert_wo": (L, e, f, d)},
        "norm": {"attn": (L, d), "moe": (L, d)},
    }


def match(rules, path):
    name = "/".join(k.key for k in path)
    for pattern, spec in rules:
        if re.search(pattern, name):
            return spec
    return P()


def norm(x, g):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def moe(x, router, wi, wo):
    """Soft mixture: every expert works on a few weighted averages of the tokens of a sequence."""
    b, s, d = x.shape
    logits = (x @ router).astype(jnp.float32)
    dispatch = jax.nn.softmax(logits, axis=1).astype(x.dtype)
    combine = jax.nn.softmax(logits, axis=2).astype(x.dtype)
    slots = jnp.einsum("bsn,bsd->bnd", dispatch, x).reshape(b, HP["experts"], HP["slots"], d)
    h = jax.nn.silu(jnp.einsum("becd,edf->becf", slots, wi))
    ye = jnp.einsum("becf,efd->becd", h, wo).reshape(b, -1, d)
    return jnp.einsum("bsn,bnd->bsd", combine, ye)


def attention(x, p):
    b, s, d = x.shape
    q, k, v = ((x @ p[n]).reshape(b, s, HP["heads"], -1) for n in "qkv")
    return jax.nn.dot_product_attention(q, k, v).reshape(b, s, d) @ p["o"]


def loss_fn(params, patches, labels, act):
    params = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
    x = jax.lax.with_sharding_constraint(patches @ params["patchify"]["kernel"], act)

    @jax.checkpoint
    def layer(x, p):
        x = x + attention(norm(x, p["norm"]["attn"]), p["attn"])
        x = x + moe(norm(x, p["norm"]["moe"]), p["moe"]["router"], p["moe"]["expert_wi"], p["moe"]["expert_wo"])
        return jax.lax.with_sharding_constraint(x, act), None

    x, _ = jax.lax.scan(layer, x, {k: params[k] for k in ("attn", "moe", "norm")})
    logits = (x.mean(1) @ params["head"]["kernel"]).astype(jnp.float32)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, HP["classes"]), -1))


def program(devices, rules):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    shapes = param_shapes()
    specs = jax.tree_util.tree_map_with_path(lambda p, s: match(rules, p), shapes, is_leaf=lambda s: isinstance(s, tuple))
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    params = jax.tree.map(lambda sh, s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=sh), shardings, shapes)
    rows = NamedSharding(mesh, P("data"))
    patches = jax.ShapeDtypeStruct((HP["batch"], HP["seq"], HP["patch"]), jnp.bfloat16, sharding=rows)
    labels = jax.ShapeDtypeStruct((HP["batch"],), jnp.int32, sharding=rows)
    act = NamedSharding(mesh, P("data", None, None))

    def update(params, momentum, patches, labels):
        grads = jax.grad(loss_fn)(params, patches, labels, act)
        momentum = jax.tree.map(lambda m, g: 0.95 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.02 * m, params, momentum), momentum

    fn = jax.jit(update, donate_argnums=(0, 1), out_shardings=(shardings, shardings))
    return fn, (params, params, patches, labels)


def make_faulty(devices):
    return program(devices, RULES)


def make_fixed(devices):
    return program(devices, RULES_PATCHED)
