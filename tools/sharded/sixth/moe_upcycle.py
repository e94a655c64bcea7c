# mypy: ignore-errors
"""Fault: donated. The state comes in split over experts and tensor axis, but the step's out_shardings still come from the table without tensor
parallelism, so no donated buffer fits its result: old and new weights and moments exist side by side."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, EXPERTS, DIM, FF, TOPK = 3, 16, 1024, 2048, 2
HEADS, VOCAB, BATCH, SEQ = 8, 16_384, 32, 512
CAPACITY = 1.25


def shapes():
    layer = {
        "router": (DIM, EXPERTS),
        "w_in": (EXPERTS, DIM, FF),
        "w_out": (EXPERTS, FF, DIM),
        "qkv": (DIM, 3 * DIM),
        "o": (DIM, DIM),
    }
    return {"embed": (VOCAB, DIM), "layers": {k: (LAYERS, *v) for k, v in layer.items()}}


EXPERT_ONLY = {
    "w_in": P(None, "expert", None, None),
    "w_out": P(None, "expert", None, None),
    "qkv": P(None, "expert", None),
    "o": P(None, "expert", None),
    "embed": P("expert", None),
}

EXPERT_TENSOR = {
    "w_in": P(None, "expert", None, "tensor"),
    "w_out": P(None, "expert", "tensor", None),
    "qkv": P(None, "expert", "tensor"),
    "o": P(None, "tensor", "expert"),
    "embed": P("tensor", "expert"),
}


def tree_of(mesh, table):
    return jax.tree_util.tree_map_with_path(lambda p, s: NamedSharding(mesh, table.get(p[-1].key, P())), shapes(),
                                            is_leaf=lambda s: isinstance(s, tuple))


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def attention(x, w):
    b, s, d = x.shape
    q, k, v = jnp.split((x @ w["qkv"]).reshape(b, s, HEADS, -1), 3, -1)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d) @ w["o"]


def moe(pin, x, w):
    b, s, d = x.shape
    cap = int(CAPACITY * TOPK * s / EXPERTS)
    gates, idx = jax.lax.top_k(jax.nn.softmax((x @ w["router"]).astype(jnp.float32)), TOPK)
    hot = jax.nn.one_hot(idx, EXPERTS, dtype=jnp.float32)
    place = (jnp.cumsum(hot.reshape(b, s * TOPK, EXPERTS), 1) - 1).reshape(b, s, TOPK, EXPERTS)
    slot = jax.nn.one_hot(jnp.where(hot > 0, place, -1).astype(jnp.int32), cap, dtype=x.dtype)
    combine = jnp.einsum("bsk,bskec->bsec", gates.astype(x.dtype), slot)
    dispatch = (combine > 0).astype(x.dtype)
    buf = pin(jnp.einsum("bsec,bsd->ebcd", dispatch, x), P("expert"))
    out = pin(jnp.einsum("ebcf,efd->ebcd", jax.nn.gelu(jnp.einsum("ebcd,edf->ebcf", buf, w["w_in"])), w["w_out"]),
              P("expert"))
    return pin(jnp.einsum("bsec,ebcd->bsd", combine, out), P("expert"))


def make_step(mesh, tx):
    def pin(a, spec):
        return jax.lax.with_sharding_constraint(a, NamedSharding(mesh, spec))

    @jax.checkpoint
    def body(x, w):
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        x = pin(x, P("expert"))
        x = x + attention(norm(x), w)
        return x + moe(pin, norm(x), w), None

    def loss_fn(params, tokens):
        emb = params["embed"].astype(jnp.bfloat16)
        x, _ = jax.lax.scan(body, emb[tokens[:, :-1]], params["layers"])
        logits = pin(jnp.einsum("bsd,vd->bsv", norm(x), emb), P("expert", None, "tensor")).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params, opt, tokens):
        loss, g = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = tx.update(g, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    return step


def build(devices, results):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("expert", "tensor"))
    tx = optax.adafactor(1e-3, momentum=0.9, factored=False)
    given = tree_of(mesh, EXPERT_TENSOR)
    wanted = tree_of(mesh, results)

    params = jax.tree.map(lambda s, h: jax.ShapeDtypeStruct(s, jnp.float32, sharding=h), shapes(), given,
                          is_leaf=lambda s: isinstance(s, tuple))
    opt = jax.eval_shape(tx.init, params)
    assign = functools.partial(optax.tree_map_params, tx, transform_non_params=lambda _: NamedSharding(mesh, P()))
    fit = lambda a, h: h if a.ndim > 1 else NamedSharding(mesh, P())
    opt_in, opt_out = (assign(fit, opt, t) for t in (given, wanted))
    opt = jax.tree.map(lambda a, h: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=h), opt, opt_in)
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P("expert")))
    fn = jax.jit(make_step(mesh, tx), donate_argnums=(0, 1), out_shardings=(wanted, opt_out, None))
    return fn, (params, opt, tokens)


def make_faulty(devices):
    return build(devices, results=EXPERT_ONLY)  # FAULT


def make_fixed(devices):
    return build(devices, results=EXPERT_TENSOR)
