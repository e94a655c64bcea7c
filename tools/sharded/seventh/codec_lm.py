# mypy: ignore-errors
"""Fault: padding. The logits of the nine residual codebooks are split by codebook over an eight-way axis, which pads nine
to sixteen; splitting the 1024 codes of each book would be even."""
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:4x4"

CODEBOOKS, CODES, TEXT_DIM = 9, 1024, 768
FRAMES, BATCH, DIM, MLP_DIM, DEPTH, HEADS = 860, 64, 512, 2048, 2, 8

LOGICAL = {"batch": "data", "mlp": "model", "heads": "model", "books": "model", "codes": "model"}
LOGITS_AXES = ("batch", None, "books", None)  # FAULT
LOGITS_AXES_EVEN = ("batch", None, None, "codes")


@struct.dataclass
class Params:
    adapter: Any
    position: Any
    blocks: Any
    heads: Any


def partition(mesh, axes):
    return NamedSharding(mesh, PartitionSpec(*[LOGICAL.get(a) for a in axes]))


def with_axes(mesh, x, axes):
    return jax.lax.with_sharding_constraint(x, partition(mesh, axes))


def describe(mesh):
    def leaf(shape, axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=partition(mesh, axes))

    block = {
        "qkv": leaf((DEPTH, DIM, 3, DIM), (None, None, None, "heads")),
        "proj": leaf((DEPTH, DIM, DIM), (None, "heads", None)),
        "wi": leaf((DEPTH, DIM, MLP_DIM), (None, None, "mlp")),
        "wo": leaf((DEPTH, MLP_DIM, DIM), (None, "mlp", None)),
    }
    return Params(
        adapter=leaf((TEXT_DIM, DIM), (None, None)),
        position=leaf((FRAMES, DIM), (None, None)),
        blocks=block,
        heads=leaf((DIM, CODEBOOKS, CODES), (None, None, "codes")),
    )


def trunk(p, x, mesh):
    def block(x, w):
        b, t, d = x.shape
        qkv = jnp.einsum("btd,dce->btce", x, w["qkv"].astype(x.dtype))
        q, k, v = (qkv[:, :, i].reshape(b, t, HEADS, d // HEADS) for i in range(3))
        a = jax.nn.dot_product_attention(q, k, v).reshape(b, t, d)
        x = x + a @ w["proj"].astype(x.dtype)
        h = with_axes(mesh, jax.nn.gelu(x @ w["wi"].astype(x.dtype)), ("batch", None, "mlp"))
        x = x + h @ w["wo"].astype(x.dtype)
        return with_axes(mesh, x, ("batch", None, None)), None

    return jax.lax.scan(jax.checkpoint(block), x, p.blocks)[0]


def codec_loss(p, features, codes, mesh, logits_axes):
    x = (features @ p.adapter.astype(features.dtype)) + p.position.astype(features.dtype)
    x = with_axes(mesh, x, ("batch", None, None))
    x = trunk(p, x, mesh)
    logits = jnp.einsum("btd,dqc->btqc", x, p.heads.astype(x.dtype), preferred_element_type=jnp.float32)
    logits = with_axes(mesh, logits, logits_axes)
    target = jax.nn.one_hot(codes, CODES)
    nll = jax.nn.logsumexp(logits, -1) - jnp.sum(logits * target, -1)
    book_weight = 0.8 ** jnp.arange(CODEBOOKS)
    return jnp.mean(nll * book_weight)


def training_step(devices, logits_axes):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "model"))
    params = describe(mesh)
    tx = optax.sgd(0.1)

    def step(params, features, codes):
        loss, g = jax.value_and_grad(codec_loss)(params, features, codes, mesh, logits_axes)
        updates, _ = tx.update(g, tx.init(params), params)
        return optax.apply_updates(params, updates), loss

    rows = partition(mesh, ("batch",))
    features = jax.ShapeDtypeStruct((BATCH, FRAMES, TEXT_DIM), jnp.bfloat16, sharding=rows)
    codes = jax.ShapeDtypeStruct((BATCH, FRAMES, CODEBOOKS), jnp.int32, sharding=rows)
    keep = jax.tree.map(lambda s: s.sharding, params)
    fn = jax.jit(step, donate_argnums=(0,), out_shardings=(keep, partition(mesh, ())))
    return fn, (params, features, codes)


def make_faulty(devices):
    return training_step(devices, LOGITS_AXES)


def make_fixed(devices):
    return training_step(devices, LOGITS_AXES_EVEN)
