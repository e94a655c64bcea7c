# mypy: ignore-errors
"""Fault: stack. The hidden states that the scan over layers stacks for export are pinned to "data" and
stay whole along "seq", although the tokens and the stream through the layers are split over both.

Representation export of a protein language model: one forward pass with the sequence dimension
split (keys and values are gathered per layer), every layer's hidden states come out for the probes
downstream, together with per-residue log-likelihoods.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:2x2"

AMINO_TOKENS = 32


@dataclass(frozen=True)
class ProteinLM:
    depth: int = 16
    width: int = 960
    heads: int = 15
    ffn: int = 2560
    crop: int = 1024

    @property
    def head_dim(self):
        return self.width // self.heads

    def shapes(self):
        n, d, f = self.depth, self.width, self.ffn
        layer = {"ln1": (n, d), "ln2": (n, d), "q": (n, d, d), "k": (n, d, d), "v": (n, d, d)}
        layer |= {"o": (n, d, d), "w_in": (n, d, f), "w_gate": (n, d, f), "w_out": (n, f, d)}
        return {"embed": (AMINO_TOKENS, d), "layer": layer, "ln_f": (d,), "lm_head": (d, AMINO_TOKENS)}


class Parallel:
    """The two ways in which this job is split: proteins over "data", residues over "seq"."""

    def __init__(self, devices, data, seq):
        self.mesh = Mesh(np.asarray(devices).reshape(data, seq), ("data", "seq"))

    def named(self, *axes):
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    @cached_property
    def residues(self):
        return self.named("data", "seq")

    @cached_property
    def proteins(self):
        return self.named("data")

    def weight(self, shape):
        # stored split over all chips, on the input features; gathered layer by layer
        return self.named(None, ("data", "seq")) if len(shape) == 3 else self.named()


def pin(x, sharding):
    return jax.lax.with_sharding_constraint(x, sharding)


def layer_norm(x, scale):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def rotary(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(ang)[:, None], jnp.sin(ang)[:, None]
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def attention(model, par, w, y, padding):
    b, t, _ = y.shape
    q, k, v = ((y @ w[n]).reshape(b, t, model.heads, model.head_dim) for n in "qkv")
    positions = jnp.arange(t)
    q, k = rotary(q, positions), rotary(k, positions)
    k, v = pin(k, par.proteins), pin(v, par.proteins)  # my residues look at all residues
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * model.head_dim**-0.5
    logits = jnp.where(padding[:, None, None, :], -1e9, logits.astype(jnp.float32))
    probs = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(b, t, -1) @ w["o"]


def layer_forward(model, par, w, h, padding):
    h = h + attention(model, par, w, layer_norm(h, w["ln1"]), padding)
    y = layer_norm(h, w["ln2"])
    h = h + (jax.nn.silu(y @ w["w_gate"]) * (y @ w["w_in"])) @ w["w_out"]
    return pin(h, par.residues)


def export(model, par, params, tokens, padding):
    h = pin(params["embed"][tokens], par.residues)

    def body(h, w):
        h = layer_forward(model, par, w, h, padding)
        tap = jnp.where(padding[..., None], 0.0, h.astype(jnp.float32))
        return h, pin(tap, par.proteins)  # FAULT

    h, taps = jax.lax.scan(body, h, params["layer"])
    logits = (layer_norm(h, params["ln_f"]) @ params["lm_head"]).astype(jnp.float32)
    scores = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]
    return {"taps": taps, "scores": jnp.where(padding, 0.0, scores)}


def make_faulty(devices):
    model = ProteinLM()
    par = Parallel(devices, data=2, seq=2)

    def weight(shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=par.weight(shape))

    params = jax.tree.map(weight, model.shapes(), is_leaf=lambda s: isinstance(s, tuple))
    tokens = jax.ShapeDtypeStruct((8, model.crop), jnp.int32, sharding=par.residues)
    padding = jax.ShapeDtypeStruct((8, model.crop), jnp.bool_, sharding=par.residues)

    @jax.jit
    def run(params, tokens, padding):
        return export(model, par, params, tokens, padding)

    return run, (params, tokens, padding)
