# mypy: ignore-errors
"""Fault: replicated. Both towers' embeddings are gathered before the similarity, so every chip holds
the whole (batch, batch) matrix of logits instead of its own rows of it."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CFG = dict(batch=8192, patches=16, patch_dim=384, words=24, vocab=32000, width=512, hidden=1024, blocks=2, embed=256)


def tower_shapes(cfg, in_shape):
    w, h = cfg["width"], cfg["hidden"]
    blocks = [dict(scale=(w,), up=(w, h), down=(h, w)) for _ in range(cfg["blocks"])]
    return dict(stem=in_shape, blocks=blocks, head=(w, cfg["embed"]))


def model_shapes(cfg):
    return dict(
        image=tower_shapes(cfg, (cfg["patch_dim"], cfg["width"])),
        text=tower_shapes(cfg, (cfg["vocab"], cfg["width"])),
        temperature=(),
    )


def rms(x, scale):
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
    return (x32 * scale).astype(x.dtype)


@jax.checkpoint
def mixer_block(p, x):
    h = rms(x, p["scale"]) @ p["up"].astype(x.dtype)
    return x + jax.nn.gelu(h) @ p["down"].astype(x.dtype)


def encode(p, x):
    for blk in p["blocks"]:
        x = mixer_block(blk, x)
    z = jnp.mean(x, axis=1) @ p["head"].astype(x.dtype)
    z = z.astype(jnp.float32)
    return z / (jnp.linalg.norm(z, axis=-1, keepdims=True) + 1e-6)


def encode_image(p, patches):
    return encode(p, patches @ p["stem"].astype(patches.dtype))


def encode_text(p, ids):
    return encode(p, p["stem"].astype(jnp.bfloat16)[ids])


def similarity(mesh, zi, zt):
    """Every image against every caption of the global batch."""
    everywhere = NamedSharding(mesh, P())
    zi = jax.lax.with_sharding_constraint(zi, everywhere)  # FAULT
    zt = jax.lax.with_sharding_constraint(zt, everywhere)
    return zi @ zt.T  # FAULT


def similarity_rows(mesh, zi, zt):
    """Every image of this chip against every caption of the global batch."""
    zi = jax.lax.with_sharding_constraint(zi, NamedSharding(mesh, P("data", None)))
    zt = jax.lax.with_sharding_constraint(zt, NamedSharding(mesh, P()))
    return jax.lax.with_sharding_constraint(zi @ zt.T, NamedSharding(mesh, P("data", None)))


def clip_loss(params, batch, sim):
    zi = encode_image(params["image"], batch["patches"])
    zt = encode_text(params["text"], batch["ids"])
    logits = sim(zi, zt) * jnp.exp(params["temperature"])
    hit = jnp.diagonal(logits)
    by_image = jax.nn.logsumexp(logits, axis=1)
    by_text = jax.nn.logsumexp(logits, axis=0)
    return jnp.mean(by_image + by_text - 2 * hit) / 2


def step(params, momentum, batch, *, sim, lr=1e-3):
    loss, grads = jax.value_and_grad(clip_loss)(params, batch, sim)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - lr * m, params, momentum)
    return params, momentum, loss


def build(devices, sim):
    mesh = Mesh(np.asarray(devices), ("data",))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    # the weights are small: plain data parallelism
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=rep),
        model_shapes(CFG), is_leaf=lambda s: isinstance(s, tuple),
    )
    batch = dict(
        patches=jax.ShapeDtypeStruct((CFG["batch"], CFG["patches"], CFG["patch_dim"]), jnp.bfloat16, sharding=rows),
        ids=jax.ShapeDtypeStruct((CFG["batch"], CFG["words"]), jnp.int32, sharding=rows),
    )
    fn = jax.jit(
        functools.partial(step, sim=functools.partial(sim, mesh)),
        out_shardings=(rep, rep, rep), donate_argnums=(0, 1),
    )
    return fn, (params, params, batch)


def make_faulty(devices):
    return build(devices, similarity)


def make_fixed(devices):
    return build(devices, similarity_rows)
