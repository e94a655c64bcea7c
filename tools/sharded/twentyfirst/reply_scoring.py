# mypy: ignore-errors
"""Clean. The vocabulary of 50,257 is padded to 50,304 in the weights, so that it divides by the chips; the
excess is masked out of the softmax and costs a thousandth.

Scores suggested replies to e-mails: log-likelihood of every candidate under a tensor-parallel decoder. The
logits are formed for a stretch of positions at a time and stay split along the vocabulary, inference only.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, DIM, HIDDEN, HEADS, LAYERS = 50_257, 1280, 5120, 20, 12
CANDIDATES, LENGTH, STRETCH = 32, 512, 64
PADDED = math.ceil(VOCAB / 128) * 128


def shapes_and_specs():
    n, d, f = LAYERS, DIM, HIDDEN
    return {
        "embed": ((PADDED, d), P("tensor")),
        "positions": ((LENGTH, d), P()),
        "layers": {
            "q": ((n, d, d), P(None, None, "tensor")),
            "k": ((n, d, d), P(None, None, "tensor")),
            "v": ((n, d, d), P(None, None, "tensor")),
            "o": ((n, d, d), P(None, "tensor")),
            "up": ((n, d, f), P(None, None, "tensor")),
            "down": ((n, f, d), P(None, "tensor")),
            "ln": ((n, 2, d), P()),
        },
        "ln": ((d,), P()),
    }


class Scorer:
    def __init__(self, mesh):
        self.mesh = mesh

    def pin(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))

    @staticmethod
    def norm(x, scale):
        y = x.astype(jnp.float32)
        y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
        return (y * scale).astype(x.dtype)

    def layer(self, x, w):
        b, t, d = x.shape
        y = self.norm(x, w["ln"][0])
        q, k, v = (self.pin((y @ w[n]).reshape(b, t, HEADS, -1), None, None, "tensor") for n in "qkv")
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        x = self.pin(x + y @ w["o"])
        y = self.pin(jax.nn.gelu(self.norm(x, w["ln"][1]) @ w["up"]), None, None, "tensor")
        return self.pin(x + y @ w["down"]), None

    def stretch(self, table, hidden, wanted):
        """Log-probabilities of `wanted` after `hidden`, both (candidates, STRETCH, ...)."""
        logits = self.pin((hidden @ table.T).astype(jnp.float32), None, None, "tensor")
        column = jnp.arange(PADDED)
        logits = jnp.where(column < VOCAB, logits, -jnp.inf)
        picked = jnp.sum(jnp.where(column == wanted[..., None], logits, 0.0), -1)
        return picked - jax.nn.logsumexp(logits, axis=-1)

    def __call__(self, params, tokens, is_reply):
        x = self.pin(params["embed"][tokens] + params["positions"])
        x, _ = jax.lax.scan(self.layer, x, params["layers"])
        x = self.norm(x, params["ln"])
        wanted = jnp.roll(tokens, -1, axis=1)
        counts = jnp.roll(is_reply, -1, axis=1).at[:, -1].set(False)

        def pieces(a):
            return jnp.moveaxis(a.reshape(CANDIDATES, LENGTH // STRETCH, STRETCH, *a.shape[2:]), 1, 0)

        scores = jax.lax.map(lambda p: self.stretch(params["embed"], *p), (pieces(x), pieces(wanted)))
        scores = jnp.moveaxis(scores, 0, 1).reshape(CANDIDATES, LENGTH)
        total = jnp.sum(jnp.where(counts, scores, 0.0), axis=1)
        return total / jnp.maximum(counts.sum(1), 1)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("tensor",))
    whole = NamedSharding(mesh, P())
    params = jax.tree.map(
        lambda e: jax.ShapeDtypeStruct(e[0], jnp.bfloat16, sharding=NamedSharding(mesh, e[1])),
        shapes_and_specs(),
        is_leaf=lambda e: isinstance(e, tuple),
    )
    tokens = jax.ShapeDtypeStruct((CANDIDATES, LENGTH), jnp.int32, sharding=whole)
    is_reply = jax.ShapeDtypeStruct((CANDIDATES, LENGTH), jnp.bool_, sharding=whole)
    return jax.jit(Scorer(mesh), out_shardings=whole), (params, tokens, is_reply)
