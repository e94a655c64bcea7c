# mypy: ignore-errors
"""Fault: donated. The KV cache is donated to the verification step of speculative decoding,
but comes back with its heads undivided, so that the donated buffers cannot be reused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 6
    dim: int = 1024
    heads: int = 8
    head_dim: int = 128
    ffn: int = 2816
    vocab: int = 32000
    batch: int = 16
    context: int = 1024
    draft: int = 8


@dataclasses.dataclass(frozen=True)
class Placement:
    tokens: P = P("dp", None)
    lengths: P = P("dp")
    cache: P = P(None, "dp", None, "tp", None)
    cache_out: P = P(None, "dp", None, None, None)  # FAULT
    accepted: P = P("dp")


PARAM_SPECS = {
    "embed": P("tp", None),
    "wqkv": P(None, None, None, "tp", None),
    "wo": P(None, "tp", None, None),
    "w_in": P(None, None, "tp"),
    "w_out": P(None, "tp", None),
}


def param_shapes(cfg):
    n, d, h, k = cfg.layers, cfg.dim, cfg.heads, cfg.head_dim
    return {
        "embed": (cfg.vocab, d),
        "wqkv": (n, 3, d, h, k),
        "wo": (n, h, k, d),
        "w_in": (n, d, cfg.ffn),
        "w_out": (n, cfg.ffn, d),
    }


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def write_rows(cache, new, lengths):
    """Put each sequence's draft rows behind what the sequence holds already."""
    return jax.vmap(lambda c, n, at: jax.lax.dynamic_update_slice(c, n, (at, 0, 0)))(
        cache, new, lengths
    )


def verify(params, cache, lengths, draft, *, cfg):
    x = jnp.take(params["embed"], draft, axis=0)
    position = lengths[:, None] + jnp.arange(cfg.draft)[None, :]
    visible = jnp.arange(cfg.context)[None, None, :] <= position[:, :, None]

    def layer(x, scanned):
        w, k_cache, v_cache = scanned
        q, k, v = jnp.einsum("btd,sdhk->sbthk", rms(x), w["wqkv"])
        k_cache = write_rows(k_cache, k, lengths)
        v_cache = write_rows(v_cache, v, lengths)
        scores = jnp.einsum("bthk,bchk->bhtc", q, k_cache) * cfg.head_dim**-0.5
        scores = jnp.where(visible[:, None], scores, -1e9)
        mixed = jnp.einsum("bhtc,bchk->bthk", jax.nn.softmax(scores), v_cache)
        x = x + jnp.einsum("bthk,hkd->btd", mixed, w["wo"])
        x = x + jax.nn.silu(rms(x) @ w["w_in"]) @ w["w_out"]
        return x, (k_cache, v_cache)

    stacked = {n: w for n, w in params.items() if n != "embed"}
    x, (keys, values) = jax.lax.scan(layer, x, (stacked, cache["k"], cache["v"]))
    choice = jnp.argmax(rms(x) @ params["embed"].T, axis=-1)
    agrees = choice[:, :-1] == draft[:, 1:]
    accepted = jnp.cumprod(agrees.astype(jnp.int32), axis=1).sum(axis=1)
    return {"k": keys, "v": values}, lengths + accepted + 1, accepted


def make_faulty(devices):
    cfg, place = Config(), Placement()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))

    def on(spec):
        return NamedSharding(mesh, spec)

    def struct(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=on(spec))

    params = {
        n: struct(shape, jnp.bfloat16, PARAM_SPECS[n]) for n, shape in param_shapes(cfg).items()
    }
    shape = (cfg.layers, cfg.batch, cfg.context, cfg.heads, cfg.head_dim)
    cache = {n: struct(shape, jnp.bfloat16, place.cache) for n in "kv"}
    lengths = struct((cfg.batch,), jnp.int32, place.lengths)
    draft = struct((cfg.batch, cfg.draft), jnp.int32, place.tokens)
    fn = jax.jit(
        functools.partial(verify, cfg=cfg),
        donate_argnums=(1, 2),
        out_shardings=(on(place.cache_out), on(place.lengths), on(place.accepted)),  # FAULT
    )
    return fn, (params, cache, lengths, draft)
