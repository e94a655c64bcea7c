# mypy: ignore-errors
"""Fault: replicated. A regression whose batch of features is on every chip."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:2x2"


def _make(devices, rows):
    mesh = Mesh(np.array(devices), ("data",))
    split = NamedSharding(mesh, P("data"))

    @jax.jit
    def evaluate(params, features):
        hidden = jnp.tanh(features @ params["w1"])
        return jnp.abs(hidden @ params["w2"]).sum(axis=0)

    params = {
        "w1": S((2048, 4096), "float32", sharding=split),
        "w2": S((4096, 1024), "float32", sharding=split),
    }
    features = S((65536, 2048), "float32", sharding=NamedSharding(mesh, rows))  # FAULT
    return evaluate, (params, features)


def make_faulty(devices):
    return _make(devices, P())  # FAULT


def make_fixed(devices):
    return _make(devices, P("data"))
