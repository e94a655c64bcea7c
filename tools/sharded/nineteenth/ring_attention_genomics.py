# mypy: ignore-errors
"""Clean. Ring attention in a shard_map: keys and values travel round the devices and are never gathered;
the weights are 6 MiB in all and whole on every device by choice.

Effect of variants on chromatin tracks, predicted from one long DNA sequence which is split over its
positions; the reference and the altered sequence go through the network one after the other.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

BASES, BIN, WIDTH, HEADS, LAYERS, TRACKS = 131_072, 8, 256, 8, 3, 64
RING = "ring"


def param_shapes():
    def s(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    n, d = LAYERS, WIDTH
    return {
        "stem": s(4 * BIN, d),
        "layers": {"qkv": s(n, d, 3 * d), "out": s(n, d, d), "up": s(n, d, 2 * d), "down": s(n, 2 * d, d)},
        "tracks": s(d, TRACKS),
    }


def ring_attention(q, k, v):
    """q, k, v: [tokens of this device, heads, head width]; softmax over the tokens of all devices."""
    size = jax.lax.axis_size(RING)
    onward = [(i, (i + 1) % size) for i in range(size)]

    def visit(acc, top, norm, k, v):
        scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        new_top = jnp.maximum(top, scores.max(-1))
        weights = jnp.exp(scores - new_top[..., None])
        shrink = jnp.exp(top - new_top)
        acc = acc * shrink[..., None] + jnp.einsum("hqk,khd->hqd", weights, v)
        return acc, new_top, norm * shrink + weights.sum(-1)

    def step(carry, _):
        acc, top, norm, k, v = carry
        acc, top, norm = visit(acc, top, norm, k, v)
        k, v = (jax.lax.ppermute(x, RING, onward) for x in (k, v))
        return (acc, top, norm, k, v), None

    t, h, d = q.shape
    start = (jnp.zeros((h, t, d)), jnp.full((h, t), -1e30), jnp.zeros((h, t)), k, v)
    (acc, _, norm, _, _), _ = jax.lax.scan(step, start, None, length=size)
    return jnp.swapaxes(acc / norm[..., None], 0, 1)


def normalise(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(x, p):
    t = x.shape[0]
    q, k, v = (y.reshape(t, HEADS, -1) for y in jnp.split(normalise(x) @ p["qkv"], 3, axis=-1))
    x = x + ring_attention(q, k, v).reshape(t, WIDTH) @ p["out"]
    return x + jax.nn.gelu(normalise(x) @ p["up"]) @ p["down"], None


def coverage(params, dna):
    x = jax.nn.one_hot(dna, 4).reshape(-1, 4 * BIN) @ params["stem"]
    x, _ = jax.lax.scan(layer, x, params["layers"])
    return jax.nn.softplus(normalise(x) @ params["tracks"]) + 1e-4


def alter(dna, position, base):
    """The sequence with one base changed; the position counts from the start of the whole sequence."""
    where = jnp.arange(dna.shape[0]) + jax.lax.axis_index(RING) * dna.shape[0]
    return jnp.where(where == position, base, dna)


def variant_effect(params, dna, position, base):
    both = jnp.stack([dna, alter(dna, position, base)])
    reference, altered = jax.lax.map(lambda s: coverage(params, s), both)
    fold = jnp.log2(altered / reference)
    return fold, jax.lax.pmax(jnp.abs(fold).max(0), RING)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(8), (RING,))

    run = jax.shard_map(
        variant_effect,
        mesh=mesh,
        in_specs=(P(), P(RING), P(), P()),
        out_specs=(P(RING), P()),
        check_vma=False,
    )
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P(RING))
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), param_shapes())
    dna = jax.ShapeDtypeStruct((BASES,), jnp.int8, sharding=split)
    position = jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)
    base = jax.ShapeDtypeStruct((), jnp.int8, sharding=whole)
    return jax.jit(run), (params, dna, position, base)
