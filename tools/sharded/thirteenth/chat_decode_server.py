# mypy: ignore-errors
"""Fault: donated. The cache comes in divided by slots and heads but is returned divided by slots only, so the donated buffers cannot be reused and a second, larger cache is held."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass
class ServeConfig:
    n_layers: int = 8
    d_model: int = 1024
    n_q: int = 8
    n_kv: int = 4
    d_head: int = 128
    d_ff: int = 3072
    vocab: int = 32768
    slots: int = 16
    context: int = 2048


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Cache:
    k: jax.Array  # [layers, slots, kv heads, context, head]
    v: jax.Array
    length: jax.Array


def rope(x, pos):
    half = x.shape[-1] // 2
    ang = pos[:, None, None] * 10000.0 ** (-jnp.arange(half) / half)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * jnp.cos(ang) - b * jnp.sin(ang), a * jnp.sin(ang) + b * jnp.cos(ang)], -1).astype(x.dtype)


def rmsnorm(x, g):
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt((f * f).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def decode_one(cfg, weights, cache, token):
    x = weights["embed"][token]
    pos = cache.length
    rows = jnp.arange(cfg.slots)
    visible = jnp.arange(cfg.context)[None] <= pos[:, None]

    def layer(carry, w):
        x, k_all, v_all, i = carry
        y = rmsnorm(x, w["ln1"])
        q = rope((y @ w["q"]).reshape(cfg.slots, cfg.n_q, cfg.d_head), pos)
        k = rope((y @ w["k"]).reshape(cfg.slots, cfg.n_kv, cfg.d_head), pos)
        v = (y @ w["v"]).reshape(cfg.slots, cfg.n_kv, cfg.d_head)
        k_all = k_all.at[i, rows, :, pos].set(k)
        v_all = v_all.at[i, rows, :, pos].set(v)
        q = q.reshape(cfg.slots, cfg.n_kv, -1, cfg.d_head)
        s = jnp.einsum("bngd,bnsd->bngs", q, k_all[i]).astype(jnp.float32) * cfg.d_head**-0.5
        p = jax.nn.softmax(jnp.where(visible[:, None, None], s, -1e30)).astype(x.dtype)
        x = x + jnp.einsum("bngs,bnsd->bngd", p, v_all[i]).reshape(cfg.slots, -1) @ w["o"]
        y = rmsnorm(x, w["ln2"])
        x = x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
        return (x, k_all, v_all, i + 1), None

    (x, k, v, _), _ = jax.lax.scan(layer, (x, cache.k, cache.v, 0), weights["layers"])
    logits = (rmsnorm(x, weights["ln_f"]) @ weights["embed"].T).astype(jnp.float32)
    return jnp.argmax(logits, -1).astype(jnp.int32), Cache(k, v, pos + 1)


def weight_table(c):
    L, D, bf = c.n_layers, c.d_model, jnp.bfloat16
    col, row = P(None, None, "tensor"), P(None, "tensor", None)
    t = {"q": ((L, D, c.n_q * c.d_head), col), "k": ((L, D, c.n_kv * c.d_head), col), "v": ((L, D, c.n_kv * c.d_head), col),
         "o": ((L, c.n_q * c.d_head, D), row), "gate": ((L, D, c.d_ff), col), "up": ((L, D, c.d_ff), col),
         "down": ((L, c.d_ff, D), row), "ln1": ((L, D), P()), "ln2": ((L, D), P())}
    return {"embed": ((c.vocab, D), P("tensor")), "ln_f": ((D,), P()), "layers": t}


def make_faulty(devices):
    cfg = ServeConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "tensor"))
    ns = lambda *axes: NamedSharding(mesh, P(*axes))
    is_entry = lambda e: isinstance(e, tuple)
    weights = jax.tree.map(lambda e: jax.ShapeDtypeStruct(e[0], jnp.bfloat16, sharding=NamedSharding(mesh, e[1])),
                           weight_table(cfg), is_leaf=is_entry)
    shape = (cfg.n_layers, cfg.slots, cfg.n_kv, cfg.context, cfg.d_head)
    kv = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=ns(None, "data", "tensor"))
    slot = jax.ShapeDtypeStruct((cfg.slots,), jnp.int32, sharding=ns("data"))
    kv_out = ns(None, "data")  # FAULT
    step = jax.jit(
        lambda w, c, t: decode_one(cfg, w, c, t),
        donate_argnums=1,
        out_shardings=(ns("data"), Cache(kv_out, kv_out, ns("data"))),  # FAULT
    )
    return step, (weights, Cache(kv, kv, slot), slot)
