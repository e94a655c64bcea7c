# mypy: ignore-errors
"""Clean. The weights are gathered inside the rematerialised layer, so the backward pass gathers them anew.

Self-supervised EEG encoder (masked patch reconstruction), ZeRO-3 by hand: shard_map over the chips, each
layer's weights flattened into one vector of which every chip stores a piece.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Encoder:
    electrodes: int = 64
    samples: int = 32  # of one patch
    patches: int = 256
    dim: int = 1024
    heads: int = 8
    layers: int = 8
    batch: int = 16

    @property
    def shapes(self):
        d = self.dim
        return {"qkv": (d, 3 * d), "proj": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}

    @property
    def layer_size(self):
        return sum(int(np.prod(s)) for s in self.shapes.values())


def unflatten(cfg, flat):
    weights, at = {}, 0
    for name, shape in cfg.shapes.items():
        size = int(np.prod(shape))
        weights[name] = flat[at : at + size].reshape(shape)
        at += size
    return weights


def norm(x):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.astype(x.dtype)


def transformer_layer(cfg, x, flat):
    w = unflatten(cfg, flat)
    b, t, d = x.shape
    q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(b, t, cfg.heads, -1), 3, axis=-1)
    x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ w["proj"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def gather(piece):
    return jax.lax.all_gather(piece.astype(jnp.bfloat16), "zero", tiled=True)


def encode(cfg, x, pieces):
    """pieces (layers, layer_size / chips): this chip's part of every layer."""

    @jax.checkpoint
    def body(x, piece):
        return transformer_layer(cfg, x, gather(piece)), None

    x, _ = jax.lax.scan(body, x, pieces)
    return x


def loss_fn(params, cfg, signal, mask):
    """signal (batch, patches, electrodes * samples); the masked patches are to be reconstructed."""
    tokens = jnp.where(mask[..., None], 0.0, signal).astype(jnp.bfloat16)
    x = tokens @ params["stem"].astype(jnp.bfloat16) + params["position"].astype(jnp.bfloat16)
    x = encode(cfg, x, params["layers"])
    guess = (norm(x) @ params["readout"].astype(x.dtype)).astype(jnp.float32)
    error = jnp.sum((guess - signal) ** 2, -1) * mask
    return jax.lax.pmean(error.sum() / jnp.maximum(mask.sum(), 1), "zero")


def make_fixed(devices):
    cfg = Encoder()
    mesh = Mesh(np.array(devices), ("zero",))
    inputs = cfg.electrodes * cfg.samples
    shapes = {
        "stem": (inputs, cfg.dim),
        "position": (cfg.patches, cfg.dim),
        "layers": (cfg.layers, cfg.layer_size),
        "readout": (cfg.dim, inputs),
    }
    specs = {"stem": P(), "position": P(), "layers": P(None, "zero"), "readout": P()}

    def step(params, momentum, signal, mask):
        loss, grads = jax.value_and_grad(loss_fn)(params, cfg, signal, mask)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.02 * jnp.sign(m), params, momentum), momentum, loss

    params = {
        k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, specs[k])) for k, s in shapes.items()
    }
    rows = NamedSharding(mesh, P("zero"))
    signal = jax.ShapeDtypeStruct((cfg.batch, cfg.patches, inputs), jnp.float32, sharding=rows)
    mask = jax.ShapeDtypeStruct((cfg.batch, cfg.patches), jnp.bool_, sharding=rows)
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(specs, specs, P("zero"), P("zero")), out_specs=(specs, specs, P())
    )
    return jax.jit(mapped, donate_argnums=(0, 1)), (params, params, signal, mask)
