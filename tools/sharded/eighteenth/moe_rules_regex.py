# mypy: ignore-errors
"""Fault: dropped. The rule for the experts' output projections is written for `w_down`, the parameter is
called `w_out`; it falls through to the catch-all and a third of all expert weights, with their momenta
and gradients, is whole on every chip.

Mixture-of-experts language model trained with expert parallelism; regular expressions over the
slash-joined parameter path choose the partition specs (first match wins).
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as PS

TARGET = "tpu-v5e:4x4"

VOCAB, D_MODEL, D_EXPERT = 16_384, 512, 1024
N_LAYERS, N_EXPERTS, TOP_K, N_HEADS = 4, 16, 2, 8
BATCH, LENGTH, CAPACITY_FACTOR = 16, 512, 1.25

PARTITION_RULES = (
    (r"embedding$", PS("expert", "data")),
    (r"attention/(query|key|value)$", PS(None, "data", "expert")),
    (r"attention/output$", PS(None, "expert", "data")),
    (r"router/kernel$", PS(None, None, None)),
    (r"experts/w_(in|gate)$", PS(None, "expert", "data", None)),
    (r"experts/w_down$", PS(None, "expert", None, "data")),  # FAULT
    (r"lm_head$", PS("data", "expert")),
    (r".*", PS()),  # norms
)


def match_rules(rules, tree):
    def pick(path, _):
        name = "/".join(k.key for k in path)
        for pattern, spec in rules:
            if re.search(pattern, name):
                return spec
        raise ValueError(f"no partition rule for {name}")

    return jax.tree_util.tree_map_with_path(pick, tree)


def init_shapes():
    n, d, f, e = N_LAYERS, D_MODEL, D_EXPERT, N_EXPERTS

    def s(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return {
        "embedding": s(VOCAB, d),
        "layers": {
            "attention": {"query": s(n, d, d), "key": s(n, d, d), "value": s(n, d, d), "output": s(n, d, d)},
            "router": {"kernel": s(n, d, e)},
            "experts": {"w_in": s(n, e, d, f), "w_gate": s(n, e, d, f), "w_out": s(n, e, f, d)},
            "norm_attention": s(n, d),
            "norm_moe": s(n, d),
        },
        "norm_final": s(d),
        "lm_head": s(d, VOCAB),
    }


def build_model(mesh):
    def pin(x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PS(*axes)))

    def norm(x, scale):
        y = x.astype(jnp.float32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)

    def attention(p, x):
        b, t, d = x.shape
        q, k, v = ((x @ p[n].astype(x.dtype)).reshape(b, t, N_HEADS, -1) for n in ("query", "key", "value"))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return y.reshape(b, t, d) @ p["output"].astype(x.dtype)

    def moe(router, p, x):
        b, t, d = x.shape
        capacity = int(CAPACITY_FACTOR * TOP_K * t / N_EXPERTS)
        gates = jax.nn.softmax((x @ router["kernel"].astype(x.dtype)).astype(jnp.float32))
        weight, choice = jax.lax.top_k(gates, TOP_K)
        onehot = jax.nn.one_hot(choice, N_EXPERTS, dtype=jnp.float32)  # b t k e
        place = jnp.cumsum(onehot.reshape(b, t * TOP_K, N_EXPERTS), axis=1).reshape(onehot.shape) * onehot - 1.0
        slot = jax.nn.one_hot(place.astype(jnp.int32), capacity, dtype=x.dtype)  # b t k e c
        dispatch = slot.sum(2)
        combine = jnp.einsum("btk,btkec->btec", weight.astype(x.dtype), slot)
        sent = pin(jnp.einsum("btec,btd->ebcd", dispatch, x), "expert", "data", None, None)
        act = jax.nn.silu(jnp.einsum("ebcd,edf->ebcf", sent, p["w_gate"].astype(x.dtype)))
        act = act * jnp.einsum("ebcd,edf->ebcf", sent, p["w_in"].astype(x.dtype))
        back = jnp.einsum("ebcf,efd->ebcd", act, p["w_out"].astype(x.dtype))
        back = pin(back, "expert", "data", None, None)
        return jnp.einsum("ebcd,btec->btd", back, combine)

    @jax.checkpoint
    def layer(x, p):
        x = x + attention(p["attention"], norm(x, p["norm_attention"]))
        x = x + moe(p["router"], p["experts"], norm(x, p["norm_moe"]))
        return pin(x, ("data", "expert"), None, None), None

    def loss(params, tokens):
        x = params["embedding"].astype(jnp.bfloat16)[tokens]
        x = pin(x, ("data", "expert"), None, None)
        x, _ = jax.lax.scan(layer, x, params["layers"])
        x = norm(x, params["norm_final"])
        logits = (x @ params["lm_head"].astype(x.dtype)).astype(jnp.float32)
        logits = pin(logits, ("data", "expert"), None, None)[:, :-1]
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "expert"))
    loss_fn = build_model(mesh)
    shapes = init_shapes()
    specs = match_rules(PARTITION_RULES, shapes)
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs)

    def train_step(params, velocity, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        velocity = jax.tree.map(lambda v, g: 0.95 * v + g, velocity, grads)
        params = jax.tree.map(lambda p, v: p - 3e-3 * v, params, velocity)
        return params, velocity, loss

    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )
    tokens = jax.ShapeDtypeStruct(
        (BATCH, LENGTH), jnp.int32, sharding=NamedSharding(mesh, PS(("data", "expert")))
    )
    step = jax.jit(
        train_step,
        donate_argnums=(0, 1),
        out_shardings=(shardings, shardings, NamedSharding(mesh, PS())),
    )
    return step, (params, params, tokens)
