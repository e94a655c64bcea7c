# mypy: ignore-errors
"""Clean. A trunk of triangle updates on a pair representation; the scores are split by row."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class TrunkConfig:
    residues: int = 256
    channels: int = 192
    heads: int = 12
    blocks: int = 2
    expand: int = 2
    recycles: int = 3
    bins: int = 64


LAYOUT = {
    "pair": P("dev", None, None),  # [i, j, c]
    "channel": P(None, None, "dev"),  # [i, j, c]; products over a third residue are local
    "scores": P("dev", None, None, None),  # [i, h, j, k]
}


class Lay:
    def __init__(self, mesh):
        self.mesh = mesh

    def __call__(self, x, name):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, LAYOUT[name]))


def layer_norm(x):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5)


def triangle_product(w, pair, lay, *, outgoing):
    z = layer_norm(pair)
    a, b = (
        lay(lay(jax.nn.sigmoid(z @ w["gate_" + name]) * (z @ w[name]), "pair"), "channel")
        for name in "ab"
    )
    spec = "ikc,jkc->ijc" if outgoing else "kic,kjc->ijc"
    product = lay(lay(jnp.einsum(spec, a, b), "channel"), "pair")
    return jax.nn.sigmoid(z @ w["gate"]) * (layer_norm(product) @ w["out"])


def triangle_attention(w, pair, lay, *, starting):
    """Every row attends to itself; the third edge of each triangle biases its scores."""
    z = layer_norm(pair)
    if not starting:
        z = lay(z.swapaxes(0, 1), "pair")
    q, k, v = (jnp.einsum("ijc,chd->ijhd", z, w[name]) for name in "qkv")
    bias = jnp.einsum("jkc,ch->hjk", z, w["bias"])
    scores = jnp.einsum("ijhd,ikhd->ihjk", q, k) / math.sqrt(q.shape[-1])
    scores = lay(scores + bias, "scores")
    probs = lay(jax.nn.softmax(scores, axis=-1), "scores")
    mixed = lay(jnp.einsum("ihjk,ikhd->ijhd", probs, v).reshape(z.shape), "pair")
    mixed = (jax.nn.sigmoid(z @ w["gate"]) * mixed) @ w["out"]
    return mixed if starting else lay(mixed.swapaxes(0, 1), "pair")


def transition(w, pair):
    return jax.nn.relu(layer_norm(pair) @ w["up"]) @ w["down"]


def trunk_block(w, pair, lay):
    pair = lay(pair + triangle_product(w["outgoing"], pair, lay, outgoing=True), "pair")
    pair = lay(pair + triangle_product(w["incoming"], pair, lay, outgoing=False), "pair")
    pair = lay(pair + triangle_attention(w["start"], pair, lay, starting=True), "pair")
    pair = lay(pair + triangle_attention(w["end"], pair, lay, starting=False), "pair")
    return lay(pair + transition(w["transition"], pair), "pair")


def predict(cfg, lay, weights, pair):
    """Distances between residues, after the trunk has run over its own result some times."""

    def recycle(_, state):
        x = lay(pair + layer_norm(state) @ weights["recycle"], "pair")
        x, _ = jax.lax.scan(lambda x, w: (trunk_block(w, x, lay), None), x, weights["blocks"])
        return x

    state = jax.lax.fori_loop(0, cfg.recycles, recycle, jnp.zeros_like(pair))
    logits = layer_norm(state) @ weights["distogram"]
    return lay(jax.nn.softmax(logits, axis=-1), "pair")


def weight_shapes(cfg):
    c, h, n = cfg.channels, cfg.heads, cfg.blocks
    product = dict.fromkeys(("a", "gate_a", "b", "gate_b", "gate", "out"), (n, c, c))
    attention = {name: (n, c, h, c // h) for name in "qkv"}
    attention |= {"bias": (n, c, h), "gate": (n, c, c), "out": (n, c, c)}
    wide = cfg.expand * c
    blocks = {
        "outgoing": product,
        "incoming": product,
        "start": attention,
        "end": attention,
        "transition": {"up": (n, c, wide), "down": (n, wide, c)},
    }
    return {"blocks": blocks, "recycle": (c, c), "distogram": (c, cfg.bins)}


def make_fixed(devices):
    cfg = TrunkConfig()
    mesh = Mesh(np.array(devices), ("dev",))

    def struct(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    shapes = weight_shapes(cfg)
    weights = jax.tree.map(lambda s: struct(s, P()), shapes, is_leaf=lambda s: isinstance(s, tuple))
    pair = struct((cfg.residues, cfg.residues, cfg.channels), LAYOUT["pair"])
    lay = Lay(mesh)
    jitted = jax.jit(lambda weights, pair: predict(cfg, lay, weights, pair))
    return jitted, (weights, pair)
