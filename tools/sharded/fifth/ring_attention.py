# mypy: ignore-errors
"""Clean. Long-context training with ring attention: the sequence is split over all chips, keys and values
travel round the ring, the weights are replicated (sequence parallelism)."""
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LENGTH, WIDTH, HEADS, FF, LAYERS, VOCAB = 16384, 512, 8, 1536, 2, 4096
ACT = P(None, "ring", None)


def ring_attention(q, k, v, *, ring):
    """Causal attention of the local queries with all keys; q, k, v (batch, local, heads, dim)."""
    me, t = lax.axis_index("ring"), q.shape[1]
    scale = 1 / math.sqrt(q.shape[-1])
    rows = me * t + jnp.arange(t)
    shift = [(i, (i + 1) % ring) for i in range(ring)]

    @jax.checkpoint
    def visit(carry, hop):
        acc, top, norm, k, v = carry
        cols = (me - hop) % ring * t + jnp.arange(t)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * scale
        s = jnp.where(rows[:, None] >= cols[None, :], s, -1e30)
        new = jnp.maximum(top, jnp.max(s, -1))
        p, fade = jnp.exp(s - new[..., None]), jnp.exp(top - new)
        acc = acc * fade[..., None] + jnp.einsum("bhqk,bkhd->bhqd", p.astype(v.dtype), v)
        norm = norm * fade + jnp.sum(p, -1)
        k, v = (lax.ppermute(a, "ring", shift) for a in (k, v))
        return (acc, new, norm, k, v), None

    b, _, h, d = q.shape
    start = (jnp.zeros((b, h, t, d)), jnp.full((b, h, t), -1e30), jnp.zeros((b, h, t)))
    start = jax.tree.map(lambda a: lax.pcast(a, ("ring",), to="varying"), start)
    (acc, _, norm, _, _), _ = lax.scan(visit, (*start, k, v), jnp.arange(ring))
    return jnp.moveaxis(acc / norm[..., None], 1, 2).astype(q.dtype)


def rms(x):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def make_model(mesh):
    spec = P(None, "ring", None, None)
    attention = jax.shard_map(
        partial(ring_attention, ring=mesh.shape["ring"]), mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec
    )

    def split(x):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, ACT))

    @jax.checkpoint
    def layer(x, w):
        w = jax.tree.map(lambda a: a.astype(x.dtype), w)
        q, k, v = ((rms(x) @ w[n]).reshape(*x.shape[:2], HEADS, -1) for n in ("q", "k", "v"))
        x = split(x + attention(q, k, v).reshape(x.shape) @ w["o"])
        return split(x + jax.nn.gelu(rms(x) @ w["up"]) @ w["down"]), None

    def loss_fn(params, ids, labels):
        x = split(params["embed"].astype(jnp.bfloat16)[ids])
        x, _ = lax.scan(layer, x, params["layers"])
        logits = (rms(x) @ params["embed"].T.astype(x.dtype)).astype(jnp.float32)
        logits = split(logits)
        picked = jnp.sum(jnp.where(labels[..., None] == jnp.arange(VOCAB), logits, 0), -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return loss_fn


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("ring",))
    loss_fn = make_model(mesh)
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "ring"))

    def step(params, momentum, ids, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, ids, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, loss

    sizes = dict(q=(WIDTH, WIDTH), k=(WIDTH, WIDTH), v=(WIDTH, WIDTH), o=(WIDTH, WIDTH), up=(WIDTH, FF), down=(FF, WIDTH))
    params = {
        "embed": jax.ShapeDtypeStruct((VOCAB, WIDTH), jnp.float32),
        "layers": {n: jax.ShapeDtypeStruct((LAYERS, *s), jnp.float32) for n, s in sizes.items()},
    }
    ids = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32)
    fn = jax.jit(
        step, in_shardings=(whole, whole, rows, rows), out_shardings=(whole, whole, whole), donate_argnums=(0, 1)
    )
    return fn, (params, params, ids, ids)
