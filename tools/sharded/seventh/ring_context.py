# mypy: ignore-errors
"""Clean. Ring attention over a long context: keys and values rotate by ppermute, every chip holds its own piece of the sequence, weights are gathered by FSDP per layer."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, FFN, CONTEXT = 4, 1024, 8, 4096, 16384
RING = 4
SCALE = (DIM // HEADS) ** -0.5


def rotate(tree):
    pairs = [(i, (i + 1) % RING) for i in range(RING)]
    return jax.tree.map(lambda t: lax.ppermute(t, "ring", pairs), tree)


def partial_softmax(q, k, v, allowed):
    """q, k, v: [h, n, d] -> unnormalised output, row maximum, row sum; queries in chunks."""

    def chunk(_, inputs):
        qc, ok = inputs
        s = jnp.einsum("hqd,hkd->hqk", qc, k, preferred_element_type=jnp.float32) * SCALE
        s = jnp.where(ok, s, -1e30)
        m = s.max(-1)
        p = jnp.exp(s - m[..., None])
        return None, (jnp.einsum("hqk,hkd->hqd", p.astype(v.dtype), v).astype(jnp.float32), m, p.sum(-1))

    h, n, d = q.shape
    size = 512
    qs = jnp.moveaxis(q.reshape(h, n // size, size, d), 1, 0)
    _, (o, m, z) = lax.scan(chunk, None, (qs, allowed.reshape(n // size, size, -1)))
    join = lambda t: jnp.moveaxis(t, 0, 1).reshape(h, n, *t.shape[3:])
    return join(o), join(m), join(z)


def ring_attention(q, k, v):
    me = lax.axis_index("ring")
    n = q.shape[1]
    rows = me * n + jnp.arange(n)
    out = jnp.zeros(q.shape, jnp.float32)
    top = jnp.full(q.shape[:2], -1e30)
    total = jnp.zeros(q.shape[:2])
    for hop in range(RING):
        cols = ((me - hop) % RING) * n + jnp.arange(n)
        o, m, z = partial_softmax(q, k, v, rows[:, None] >= cols[None, :])
        new_top = jnp.maximum(top, m)
        a, b = jnp.exp(top - new_top), jnp.exp(m - new_top)
        out = out * a[..., None] + o * b[..., None]
        total, top = total * a + z * b, new_top
        if hop + 1 < RING:
            k, v = rotate((k, v))
    return (out / total[..., None]).astype(q.dtype)


def local_forward(weights, x):
    def whole(w):
        return lax.all_gather(w, "ring", axis=0, tiled=True)

    def layer(x, w):
        n = x.shape[0]
        qkv = (x @ whole(w["qkv"])).reshape(n, 3, HEADS, DIM // HEADS)
        q, k, v = (jnp.swapaxes(qkv[:, i], 0, 1) for i in range(3))
        a = jnp.swapaxes(ring_attention(q, k, v), 0, 1).reshape(n, DIM)
        x = x + a @ whole(w["o"])
        return x + jax.nn.gelu(x @ whole(w["fc"])) @ whole(w["proj"]), None

    return lax.scan(layer, x, weights)[0]


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("ring",))
    w_spec = P(None, "ring", None)
    shapes = {"qkv": (DIM, 3 * DIM), "o": (DIM, DIM), "fc": (DIM, FFN), "proj": (FFN, DIM)}
    weights = {
        k: jax.ShapeDtypeStruct((LAYERS, *s), jnp.bfloat16, sharding=NamedSharding(mesh, w_spec))
        for k, s in shapes.items()
    }
    x = jax.ShapeDtypeStruct((CONTEXT, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, P("ring", None)))
    fn = jax.shard_map(
        local_forward,
        mesh=mesh,
        in_specs=(jax.tree.map(lambda _: w_spec, weights), P("ring", None)),
        out_specs=P("ring", None),
        check_vma=False,
    )
    return jax.jit(fn, donate_argnums=1), (weights, x)
