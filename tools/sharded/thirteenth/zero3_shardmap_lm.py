# mypy: ignore-errors
"""Fault: gathered. The blocks are checkpointed but the weights are gathered outside of the checkpoint, so each layer's whole weights are saved by the scan for the backward pass (all layers, undivided)."""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Args:
    n_layer: int = 10
    n_embd: int = 768
    n_head: int = 12
    vocab: int = 8192
    block: int = 512
    batch: int = 16
    lr: float = 3e-4
    betas: tuple = (0.9, 0.95)


def gather(shards, axis):
    """ZeRO-3: every weight lives as 1/n of its last-but-one dimension; gathered in bf16 when it is needed."""
    return jax.tree.map(lambda w: lax.all_gather(w.astype(jnp.bfloat16), "fsdp", axis=axis, tiled=True), shards)


def layer_norm(x):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def block_fn(args, x, w):
    B, T, C = x.shape
    q, k, v = jnp.split(layer_norm(x) @ w["attn_in"], 3, axis=-1)
    heads = lambda a: a.reshape(B, T, args.n_head, C // args.n_head).transpose(0, 2, 1, 3)
    att = (heads(q) @ heads(k).swapaxes(-1, -2)).astype(jnp.float32) / np.sqrt(C // args.n_head)
    att = jnp.where(jnp.tril(jnp.ones((T, T), bool)), att, -jnp.inf)
    y = jax.nn.softmax(att, axis=-1).astype(x.dtype) @ heads(v)
    x = x + y.transpose(0, 2, 1, 3).reshape(B, T, C) @ w["attn_out"]
    return x + jax.nn.gelu(layer_norm(x) @ w["fc"]) @ w["proj"]


def forward_loss(args, params, tokens):
    wte = gather(params["wte"], 0)
    x = wte[tokens[:, :-1]]
    run = jax.checkpoint(partial(block_fn, args))  # FAULT

    def body(x, layer):
        return run(x, gather(layer, 0)), None  # FAULT

    x, _ = lax.scan(body, x, params["blocks"])
    logits = (layer_norm(x) @ wte.T).astype(jnp.float32)
    labels = tokens[:, 1:]
    nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return nll.mean()


def adam(args, p, m, v, g, t):
    b1, b2 = args.betas
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    return p - args.lr * (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8), m, v


def step(args, n, state, tokens):
    loss, grads = jax.value_and_grad(partial(forward_loss, args))(state["p"], tokens)
    t = state["t"] + 1
    out = jax.tree.map(lambda p, m, v, g: adam(args, p, m, v, g / n, t), state["p"], state["m"], state["v"], grads)
    p, m, v = jax.tree.transpose(jax.tree.structure(grads), jax.tree.structure((0, 0, 0)), out)
    return {"p": p, "m": m, "v": v, "t": t}, lax.pmean(loss, "fsdp")


def param_shapes(a):
    D, L = a.n_embd, a.n_layer
    return {"wte": jax.ShapeDtypeStruct((a.vocab, D), jnp.float32),
            "blocks": {k: jax.ShapeDtypeStruct((L, *s), jnp.float32) for k, s in
                       dict(attn_in=(D, 3 * D), attn_out=(D, D), fc=(D, 4 * D), proj=(4 * D, D)).items()}}


def make_faulty(devices):
    args = Args()
    mesh = Mesh(np.array(devices).reshape(-1), ("fsdp",))
    shapes = param_shapes(args)
    pspec = {"wte": P("fsdp"), "blocks": {k: P(None, "fsdp") for k in shapes["blocks"]}}
    spec = {"p": pspec, "m": pspec, "v": pspec, "t": P()}
    fn = jax.shard_map(partial(step, args, mesh.size), mesh=mesh, in_specs=(spec, P("fsdp")), out_specs=(spec, P()))
    place = lambda s, sp: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, sp))
    state = {"p": shapes, "m": shapes, "v": shapes, "t": jax.ShapeDtypeStruct((), jnp.float32)}
    state = jax.tree.map(place, state, spec)
    tokens = place(jax.ShapeDtypeStruct((args.batch, args.block + 1), jnp.int32), P("fsdp"))
    return jax.jit(fn, donate_argnums=0), (state, tokens)
