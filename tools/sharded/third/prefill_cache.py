# mypy: ignore-errors
"""Fault: stack. Prefill scans over the layers and emits their keys and values, which stack up split over the batch but not over the heads."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
LAYERS, BATCH, LENGTH, HEADS, HEAD_DIM, VOCAB = 12, 8, 512, 16, 32, 8192
DIM = HEADS * HEAD_DIM

LOGICAL = {"batch": "batch", "length": None, "heads": "heads", "width": None, "ffn": "heads"}


def logical(mesh, names, rules):
    return NamedSharding(mesh, P(*(rules[n] for n in names)))


def rotary(x):
    angle = jnp.arange(x.shape[1])[:, None] / (10000.0 ** (jnp.arange(HEAD_DIM // 2) / (HEAD_DIM // 2)))
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def make_prefill(mesh, cache_rules):
    pin = lambda x, *names, rules=LOGICAL: lax.with_sharding_constraint(x, logical(mesh, names, rules))

    def layer(x, w):
        x = pin(x, "batch", "length", "width")
        q = rotary(jnp.einsum("btd,dhk->bthk", x, w["q"]))
        k = rotary(jnp.einsum("btd,dhk->bthk", x, w["k"]))
        v = jnp.einsum("btd,dhk->bthk", x, w["v"])
        q = pin(q, "batch", "length", "heads", "width")
        s = jnp.einsum("bqhk,bthk->bhqt", q, k) * HEAD_DIM**-0.5
        s = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), s, -1e9)
        o = jnp.einsum("bhqt,bthk->bqhk", jax.nn.softmax(s), v)
        x = x + jnp.einsum("bqhk,hkd->bqd", o, w["o"])
        x = x + jax.nn.relu(x @ w["up"]) @ w["down"]
        emitted = [pin(c, "batch", "length", "heads", "width", rules=cache_rules) for c in (k, v)]  # FAULT
        return x, tuple(emitted)  # FAULT

    def prefill(params, tokens):
        x = params["embed"][tokens]
        x, cache = lax.scan(layer, x, params["layers"])  # FAULT
        return jnp.argmax(x[:, -1] @ params["embed"].T, -1), cache

    return prefill


def program(devices, cache_rules):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("batch", "heads"))
    arr = lambda *shape, spec, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    layers = {n: arr(LAYERS, DIM, HEADS, HEAD_DIM, spec=P(None, None, "heads")) for n in "qkv"}
    layers["o"] = arr(LAYERS, HEADS, HEAD_DIM, DIM, spec=P(None, "heads"))
    layers["up"] = arr(LAYERS, DIM, 4 * DIM, spec=P(None, None, "heads"))
    layers["down"] = arr(LAYERS, 4 * DIM, DIM, spec=P(None, "heads"))
    params = {"embed": arr(VOCAB, DIM, spec=P("heads")), "layers": layers}
    return jax.jit(make_prefill(mesh, cache_rules)), (params, arr(BATCH, LENGTH, spec=P("batch"), dtype=jnp.int32))


def make_faulty(devices):
    return program(devices, {**LOGICAL, "heads": None})  # FAULT


def make_fixed(devices):
    return program(devices, LOGICAL)
