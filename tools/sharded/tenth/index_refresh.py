# mypy: ignore-errors
"""Fault: donated. The retrieval index is donated split over both mesh axes and comes back split over
"data" only, four times the bytes per device, so that the donated buffer cannot be reused."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

DOCS, DIM, FEATURES, CHUNK = 1_048_576, 256, 512, 4096


class IndexLayout:
    """Where the pieces of the retrieval index live."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.stored = NamedSharding(mesh, P(("data", "model"), None))
        self.refreshed = NamedSharding(mesh, P("data", None))  # FAULT
        self.incoming = NamedSharding(mesh, P())
        self.encoder = NamedSharding(mesh, P())


def encode(encoder, features):
    h = jax.nn.gelu(features @ encoder["hidden"])
    v = h @ encoder["project"]
    return v * lax.rsqrt(jnp.sum(v * v, axis=-1, keepdims=True) + 1e-6)


def build_refresh(layout):
    def refresh(index, encoder, features, first):
        """Ages all vectors a little and replaces those of one chunk of documents."""
        fresh = encode(encoder, features)
        aged = index["vectors"] * 0.999
        rows = jnp.arange(DOCS)[:, None]
        inside = (rows >= first) & (rows < first + CHUNK)
        placed = jnp.take(fresh, jnp.clip(rows[:, 0] - first, 0, CHUNK - 1), axis=0)
        return {
            "vectors": jnp.where(inside, placed, aged),
            "age": index["age"] + 1,
        }

    out = {"vectors": layout.refreshed, "age": layout.stored}  # FAULT
    return jax.jit(refresh, donate_argnums=(0,), out_shardings=out)


def make_faulty(devices):
    layout = IndexLayout(Mesh(np.array(devices).reshape(4, 4), ("data", "model")))
    index = {
        "vectors": jax.ShapeDtypeStruct((DOCS, DIM), jnp.float32, sharding=layout.stored),
        "age": jax.ShapeDtypeStruct((DOCS, 1), jnp.int32, sharding=layout.stored),
    }
    encoder = {
        "hidden": jax.ShapeDtypeStruct((FEATURES, 1024), jnp.float32, sharding=layout.encoder),
        "project": jax.ShapeDtypeStruct((1024, DIM), jnp.float32, sharding=layout.encoder),
    }
    features = jax.ShapeDtypeStruct((CHUNK, FEATURES), jnp.float32, sharding=layout.incoming)
    first = jax.ShapeDtypeStruct((), jnp.int32, sharding=layout.incoming)
    return build_refresh(layout), (index, encoder, features, first)
