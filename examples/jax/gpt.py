"""A decoder's training step, as large models are trained: layers in a scan, remat, FSDP, Adam.

    hlomem compile examples/jax/gpt.py:train_step --target tpu-v5e:2x2 --set batch=8
    hlomem fit examples/jax/gpt.py:train_step --target tpu-v5e:2x2 --over batch \
        --over remat=none,dots_saveable,nothing_saveable

`train_step` is the factory: called with settings, it returns the jitted step and the shapes of its
arguments. Nothing is allocated. With `fsdp` above 1 the parameters are sharded over that many of
the target's devices, which it asks for by its parameter `devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True)
class Config:
    """The size of a model."""

    width: int
    hidden: int
    layers: int
    heads: int
    vocabulary: int


SIZES = {
    "tiny": Config(128, 512, 2, 4, 1024),
    "100m": Config(768, 3072, 12, 12, 32000),
    "1b": Config(2048, 8192, 16, 16, 32000),
}


def shapes(config):
    """The shapes of the parameters; those of layers are stacked."""
    width, hidden, layers = config.width, config.hidden, config.layers
    return {
        "embed": (config.vocabulary, width),
        "layers": {
            "qkv": (layers, width, 3 * width),
            "out": (layers, width, width),
            "up": (layers, width, hidden),
            "down": (layers, hidden, width),
            "norms": (layers, 2, width),
        },
        "norm": (width,),
        "head": (width, config.vocabulary),
    }


def norm(x, scale):
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale


def attention(x, w, heads):
    batch, length, width = x.shape
    q, k, v = jnp.split((x @ w["qkv"]).reshape(batch, length, 3 * heads, -1), 3, axis=2)
    scores = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32) / (width // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores).astype(x.dtype), v)
    return mixed.reshape(batch, length, width) @ w["out"]


def block(x, w, heads):
    x = x + attention(norm(x, w["norms"][0]), w, heads)
    return x + jax.nn.gelu(norm(x, w["norms"][1]) @ w["up"]) @ w["down"]


def loss_of(params, tokens, config, remat):
    params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    layer = partial(block, heads=config.heads)
    if remat != "none":
        layer = jax.checkpoint(layer, policy=getattr(jax.checkpoint_policies, remat))
    x = params["embed"][tokens[:, :-1]]
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, params["layers"])
    logits = (norm(x, params["norm"]) @ params["head"]).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def adam(params, state, gradients, rate=3e-4):
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    nu = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["nu"], gradients)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
    return params, {"mu": mu, "nu": nu}


def sharding_of(mesh, shape):
    """Parameters are split where they are longest; what is small is everywhere."""
    spec = [None] * len(shape)
    if max(shape) >= 1024:
        spec[shape.index(max(shape))] = "fsdp"
    return NamedSharding(mesh, PartitionSpec(*spec))


def train_step(devices, size="100m", batch=8, length=1024, remat="none", donate=True, fsdp=1):
    """The factory: a training step and the shapes of its arguments."""
    config = SIZES[size]
    mesh = Mesh(np.array(devices[:fsdp]), ("fsdp",))

    def step(params, opt_state, tokens):
        loss, gradients = jax.value_and_grad(loss_of)(params, tokens, config, remat)
        params, opt_state = adam(params, opt_state, gradients)
        return params, opt_state, {"loss": loss}

    params = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, "float32", sharding=sharding_of(mesh, shape)),
        shapes(config),
        is_leaf=lambda shape: isinstance(shape, tuple),
    )
    opt_state = {"mu": params, "nu": params}
    rows = NamedSharding(mesh, PartitionSpec("fsdp"))
    tokens = jax.ShapeDtypeStruct((batch, length + 1), "int32", sharding=rows)
    return jax.jit(step, donate_argnums=(0, 1) if donate else ()), (params, opt_state, tokens)
