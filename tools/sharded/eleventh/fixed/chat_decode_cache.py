# mypy: ignore-errors
"""Fixed."""
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Layouts:
    # cache is [batch, position, kv head, head_dim]
    cache: P = P("dp", None, "tp", None)
    column: P = P(None, "tp")
    row: P = P("tp", None)
    vocab: P = P("tp", None)
    slots: P = P("dp")


@dataclass(frozen=True)
class ServeConfig:
    layers: int = 3
    d_model: int = 1024
    n_q: int = 16
    n_kv: int = 8
    head_dim: int = 64
    d_ff: int = 2816
    vocab: int = 32000
    slots: int = 32
    max_len: int = 2048
    layouts: Layouts = field(default_factory=Layouts)


def weight_table(cfg):
    d, q, kv = cfg.d_model, cfg.n_q * cfg.head_dim, cfg.n_kv * cfg.head_dim
    lo = cfg.layouts
    layer = {
        "wq": ((d, q), lo.column), "wk": ((d, kv), lo.column), "wv": ((d, kv), lo.column),
        "wo": ((q, d), lo.row), "gate": ((d, cfg.d_ff), lo.column),
        "up": ((d, cfg.d_ff), lo.column), "down": ((cfg.d_ff, d), lo.row),
    }
    return {"embed": ((cfg.vocab, d), lo.vocab), "layers": [dict(layer) for _ in range(cfg.layers)]}


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def attend(cfg, w, x, cache, pos):
    b = x.shape[0]
    q = (x @ w["wq"]).reshape(b, cfg.n_kv, cfg.n_q // cfg.n_kv, cfg.head_dim)
    k = (x @ w["wk"]).reshape(b, 1, cfg.n_kv, cfg.head_dim)
    v = (x @ w["wv"]).reshape(b, 1, cfg.n_kv, cfg.head_dim)
    keys = jax.lax.dynamic_update_slice(cache["k"], k, (0, pos, 0, 0))
    vals = jax.lax.dynamic_update_slice(cache["v"], v, (0, pos, 0, 0))
    s = jnp.einsum("bhgd,bthd->bhgt", q, keys, preferred_element_type=jnp.float32) * cfg.head_dim**-0.5
    s = jnp.where(jnp.arange(cfg.max_len) <= pos, s, -1e30)
    p = jax.nn.softmax(s, axis=-1).astype(x.dtype)
    o = jnp.einsum("bhgt,bthd->bhgd", p, vals).reshape(b, -1)
    return o @ w["wo"], {"k": keys, "v": vals}


def decode(cfg, params, cache, token, pos):
    x = params["embed"][token]
    new_cache = []
    for w, c in zip(params["layers"], cache):
        o, c = attend(cfg, w, rms(x), c, pos)
        x = x + o
        h = rms(x)
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        new_cache.append(c)
    logits = rms(x) @ params["embed"].T
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), new_cache


def is_row(x):
    return isinstance(x, tuple)


def make_fixed(devices):
    cfg = ServeConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))
    table = weight_table(cfg)
    params = jax.tree.map(lambda r: jax.ShapeDtypeStruct(r[0], jnp.bfloat16), table, is_leaf=is_row)
    params_sh = jax.tree.map(lambda r: NamedSharding(mesh, r[1]), table, is_leaf=is_row)
    kv = jax.ShapeDtypeStruct((cfg.slots, cfg.max_len, cfg.n_kv, cfg.head_dim), jnp.bfloat16)
    cache = [{"k": kv, "v": kv} for _ in range(cfg.layers)]
    cache_sh = NamedSharding(mesh, cfg.layouts.cache)
    per_slot = NamedSharding(mesh, cfg.layouts.slots)

    def run(params, cache, token, pos):
        return decode(cfg, params, cache, token, pos)

    step = jax.jit(
        run,
        in_shardings=(params_sh, cache_sh, per_slot, None),
        out_shardings=(per_slot, cache_sh),
        donate_argnums=1,
    )
    return step, (params, cache, jax.ShapeDtypeStruct((cfg.slots,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32))
