# mypy: ignore-errors
"""Fault: stack. The residual stream between layers is divided over the batch only: what the scan saves of every layer for the
backward pass is whole along the model axis, although the frames could be divided over it."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
LAYERS, D, FF, HEADS, RANK, BATCH, FRAMES, MELS, CLASSES = 16, 1024, 4096, 16, 32, 2, 4096, 160, 512

BASE = {
    "qkv": ((D, 3, HEADS, D // HEADS), P(None, None, None, "model", None)),
    "proj": ((HEADS, D // HEADS, D), P(None, "model", None, None)),
    "up": ((D, FF), P(None, None, "model")),
    "down": ((FF, D), P(None, "model", None)),
}
ADAPTERS = {"a": ((D, RANK), P()), "b": ((RANK, D), P()), "gain": ((D,), P())}


def rms(x, gain=1.0):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * gain).astype(x.dtype)


def boundary(x):
    return lax.with_sharding_constraint(x, P("data"))  # FAULT


def chunked_attention(q, k, v, size=512):
    def chunk(qc):
        s = jnp.einsum("bqhd,bkhd->bhqk", qc, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(v.dtype), v)

    parts = q.reshape(q.shape[0], -1, size, *q.shape[2:]).swapaxes(0, 1)
    return lax.map(jax.checkpoint(chunk), parts).swapaxes(0, 1).reshape(q.shape)


@jax.checkpoint
def layer(x, weights):
    base, adapter = weights
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,dthk->bsthk", rms(x, adapter["gain"]), base["qkv"]), 2, 0)
    q, k, v = (lax.with_sharding_constraint(t, P("data", None, "model", None)) for t in (q, k, v))
    x = x + boundary(jnp.einsum("bshk,hkd->bsd", chunked_attention(q, k, v), base["proj"]))
    h = lax.with_sharding_constraint(jax.nn.gelu(rms(x) @ base["up"]), P("data", None, "model"))
    x = x + boundary(h @ base["down"])
    x = x + jax.nn.relu(x @ adapter["a"]) @ adapter["b"]
    return boundary(x), None  # FAULT


def loss(adapters, head, base, stem, feats, targets):
    x = boundary(feats @ stem)
    x, _ = lax.scan(layer, x, (base, adapters))
    logp = jax.nn.log_softmax((rms(x) @ head).astype(jnp.float32))
    return -jnp.take_along_axis(logp, targets[..., None], -1).mean()


def train(adapters, head, base, stem, feats, targets):
    value, (ga, gh) = jax.value_and_grad(loss, argnums=(0, 1))(adapters, head, base, stem, feats, targets)
    sgd = lambda w, g: w - (1e-3 * g).astype(w.dtype)
    return jax.tree.map(sgd, adapters, ga), sgd(head, gh), value


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(1, 4), ("data", "model"))
    jax.set_mesh(mesh)

    def leaf(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    base = {k: leaf((LAYERS, *s), p) for k, (s, p) in BASE.items()}
    adapters = {k: leaf((LAYERS, *s), p) for k, (s, p) in ADAPTERS.items()}
    head = leaf((D, CLASSES), P())
    stem = leaf((MELS, D), P())
    feats = leaf((BATCH, FRAMES, MELS), P("data"))
    targets = leaf((BATCH, FRAMES), P("data"), jnp.int32)
    return jax.jit(train, donate_argnums=(0, 1)), (adapters, head, base, stem, feats, targets)
