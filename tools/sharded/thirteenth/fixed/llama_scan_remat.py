# mypy: ignore-errors
"""Fixed."""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


class Hyper(NamedTuple):
    layers: int = 16
    dim: int = 1024
    ff: int = 2048
    heads: int = 16
    vocab: int = 4096
    batch: int = 64
    seq: int = 256


SPECS = {
    "embed": P("model", "data"),
    "final_norm": P(),
    "layers": {
        "norm1": P(),
        "norm2": P(),
        "wq": P(None, "data", "model"),
        "wk": P(None, "data", "model"),
        "wv": P(None, "data", "model"),
        "wo": P(None, "model", "data"),
        "gate": P(None, "data", "model"),
        "up": P(None, "data", "model"),
        "down": P(None, "model", "data"),
    },
}


ACTIVATIONS = {
    "residual": P("data", "model", None),
    "heads": P("data", None, "model", None),
    "scores": P("data", "model", None, None),
    "hidden": P("data", None, "model"),
    "logits": P("data", None, "model"),
}


def shapes(hp):
    L, D, F = hp.layers, hp.dim, hp.ff
    layer = dict(norm1=(L, D), norm2=(L, D), wq=(L, D, D), wk=(L, D, D), wv=(L, D, D), wo=(L, D, D),
                 gate=(L, D, F), up=(L, D, F), down=(L, F, D))
    return {"embed": (hp.vocab, D), "final_norm": (D,), "layers": layer}


def rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def decoder_layer(hp, pin, x, w):
    w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
    B, S, D = x.shape
    y = rms(x, w["norm1"])
    q, k, v = ((y @ w[n]).reshape(B, S, hp.heads, -1) for n in ("wq", "wk", "wv"))
    q, k, v = (pin(a, "heads") for a in (q, k, v))
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (D // hp.heads) ** -0.5
    logits = jnp.where(jnp.tri(S, dtype=bool), pin(logits, "scores"), -1e30)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits).astype(x.dtype), v).reshape(B, S, D)
    x = x + pin(pin(o, "hidden") @ w["wo"], "residual")
    y = rms(x, w["norm2"])
    h = jax.nn.silu(y @ w["gate"]) * (y @ w["up"])
    x = x + pin(h, "hidden") @ w["down"]
    return pin(x, "residual"), None


def loss_fn(params, tokens, hp, mesh):
    pin = lambda a, kind: jax.lax.with_sharding_constraint(a, NamedSharding(mesh, ACTIVATIONS[kind]))
    x = pin(params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]], "residual")
    body = jax.checkpoint(partial(decoder_layer, hp, pin), policy=jax.checkpoint_policies.nothing_saveable)
    x, _ = jax.lax.scan(body, x, params["layers"])
    logits = rms(x, params["final_norm"]) @ params["embed"].astype(jnp.bfloat16).T
    logits = pin(logits, "logits").astype(jnp.float32)
    gold = jnp.sum(jax.nn.one_hot(tokens[:, 1:], hp.vocab) * logits, -1)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - gold)


def make_fixed(devices):
    hp = Hyper()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4, weight_decay=0.1))
    place = jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS)
    params = jax.tree.map(lambda s, sh: jax.ShapeDtypeStruct(s, jnp.float32, sharding=sh), shapes(hp), place,
                          is_leaf=lambda s: isinstance(s, tuple))
    replicated = NamedSharding(mesh, P())
    opt_state = optax.tree_utils.tree_map_params(
        opt, lambda s, sh: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sh), jax.eval_shape(opt.init, params), place,
        transform_non_params=lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=replicated))
    tokens = jax.ShapeDtypeStruct((hp.batch, hp.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    def update(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, hp, mesh)
        delta, opt_state = opt.update(grads, opt_state, params)
        return optax.apply_updates(params, delta), opt_state, loss

    return jax.jit(update, donate_argnums=(0, 1)), (params, opt_state, tokens)
