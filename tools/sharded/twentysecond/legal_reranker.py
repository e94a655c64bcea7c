# mypy: ignore-errors
"""Clean. Passage reranker for legal search, trained pairwise: parameters split within one shard_map, every layer's
weights cast and then gathered inside the rematerialised body, so that only half-precision copies travel.

The query and its passages share the encoder; the norm scales are whole on purpose, they are tiny.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, DIM, FFN, HEADS, DEPTH = 16_384, 768, 2048, 12, 10
PAIRS, LENGTH, MOMENTUM, RATE = 16, 256, 0.9, 1e-3

SPECS = {
    "embed": P("shard"),
    "score": P(),
    "layers": {
        "qkv": P(None, "shard"),
        "out": P(None, "shard"),
        "wide": P(None, "shard"),
        "narrow": P(None, "shard"),
        "norms": P(),
    },
}
SHAPES = {
    "embed": (VOCAB, DIM),
    "score": (DIM,),
    "layers": {
        "qkv": (DEPTH, DIM, 3 * DIM),
        "out": (DEPTH, DIM, DIM),
        "wide": (DEPTH, DIM, 2 * FFN),
        "narrow": (DEPTH, FFN, DIM),
        "norms": (DEPTH, 2, DIM),
    },
}


@functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
def encode_layer(x, w):
    def whole(name):
        return jax.lax.all_gather(w[name].astype(jnp.bfloat16), "shard", axis=0, tiled=True)

    def norm(y, scale):
        z = y.astype(jnp.float32)
        return (z * jax.lax.rsqrt(jnp.mean(z * z, -1, keepdims=True) + 1e-6) * scale).astype(y.dtype)

    n, t, d = x.shape
    q, k, v = jnp.split((norm(x, w["norms"][0]) @ whole("qkv")).reshape(n, t, HEADS, -1), 3, axis=-1)
    x = x + jax.nn.dot_product_attention(q, k, v).reshape(n, t, d) @ whole("out")
    gate, up = jnp.split(norm(x, w["norms"][1]) @ whole("wide"), 2, axis=-1)
    return x + (jax.nn.gelu(gate) * up) @ whole("narrow"), None


def scores(params, tokens):
    table = jax.lax.all_gather(params["embed"].astype(jnp.bfloat16), "shard", axis=0, tiled=True)
    x, _ = jax.lax.scan(encode_layer, table[tokens], params["layers"])
    return x[:, 0].astype(jnp.float32) @ params["score"]


def pairwise(params, better, worse):
    both = scores(params, jnp.concatenate([better, worse]))
    good, bad = jnp.split(both, 2)
    return jax.nn.softplus(bad - good).mean()


def local_step(params, velocity, better, worse):
    loss, grads = jax.value_and_grad(pairwise)(params, better, worse)
    count = jax.lax.axis_size("shard")

    def settle(grad, spec):
        """Gathered weights' gradients come back summed and split; the others' must be summed."""
        return grad / count if any(spec) else jax.lax.pmean(grad, "shard")

    grads = jax.tree.map(settle, grads, SPECS)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - RATE * v, params, velocity)
    return params, velocity, jax.lax.pmean(loss, "shard")


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), ("shard",))
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(SPECS, SPECS, P("shard"), P("shard")),
        out_specs=(SPECS, SPECS, P()),
        check_vma=False,
    )
    params = jax.tree.map(
        lambda spec, shape: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec)),
        SPECS,
        SHAPES,
        is_leaf=lambda s: isinstance(s, P),
    )
    tokens = jax.ShapeDtypeStruct((PAIRS, LENGTH), jnp.int32, sharding=NamedSharding(mesh, P("shard")))
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, tokens, tokens)
