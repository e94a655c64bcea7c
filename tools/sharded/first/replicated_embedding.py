# mypy: ignore-errors
"""Fault: replicated. A language model whose embedding table is on every device."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"
VOCABULARY, WIDTH, LAYERS, BATCH, LENGTH = 16384, 512, 4, 32, 128


def _layer(h, w):
    return h + jax.nn.gelu(h @ w["up"]) @ w["down"]


def _step(params, tokens):
    def loss(params):
        h = params["embedding"][tokens]
        for w in params["layers"]:
            h = _layer(h, w)
        logits = h @ params["head"]
        return -jax.nn.log_softmax(logits)[..., 0].mean()

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def _make(devices, table):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    layer = {
        "up": S((WIDTH, 4 * WIDTH), "float32", sharding=spec("data", "model")),
        "down": S((4 * WIDTH, WIDTH), "float32", sharding=spec("model", "data")),
    }
    params = {
        "embedding": S((VOCABULARY, WIDTH), "float32", sharding=spec(*table)),  # FAULT
        "layers": [layer] * LAYERS,
        "head": S((WIDTH, VOCABULARY), "float32", sharding=spec("data", "model")),
    }
    tokens = S((BATCH, LENGTH), "int32", sharding=spec("data"))
    return jax.jit(_step, donate_argnums=0), (params, tokens)


def make_faulty(devices):
    return _make(devices, ())  # FAULT


def make_fixed(devices):
    return _make(devices, ("model", "data"))
