# mypy: ignore-errors
"""Fault: replicated. The cross-attention keys and values of the image tokens are split over the batch only, while the
self-attention cache beside them is also split over heads; every chip of a "model" group holds the same image cache."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:4x4"

LAYERS, BATCH, TEXT_LEN, IMG_TOKENS = 8, 32, 1024, 2048
D_MODEL, Q_HEADS, KV_HEADS, HEAD_DIM, D_FF = 2048, 16, 8, 128, 8192

PARAM_AXES = {
    "self_q": ("layer", "embed", "heads"),
    "self_kv": ("layer", "embed", "heads"),
    "self_o": ("layer", "heads", "embed"),
    "cross_q": ("layer", "embed", "heads"),
    "cross_o": ("layer", "heads", "embed"),
    "ffn_in": ("layer", "embed", "mlp"),
    "ffn_out": ("layer", "mlp", "embed"),
}
PARAM_SHAPES = {
    "self_q": (LAYERS, D_MODEL, Q_HEADS * HEAD_DIM),
    "self_kv": (LAYERS, D_MODEL, 2 * KV_HEADS * HEAD_DIM),
    "self_o": (LAYERS, Q_HEADS * HEAD_DIM, D_MODEL),
    "cross_q": (LAYERS, D_MODEL, Q_HEADS * HEAD_DIM),
    "cross_o": (LAYERS, Q_HEADS * HEAD_DIM, D_MODEL),
    "ffn_in": (LAYERS, D_MODEL, D_FF),
    "ffn_out": (LAYERS, D_FF, D_MODEL),
}
AXIS_TO_MESH = {"batch": "data", "heads": "model", "mlp": "model", "layer": None, "embed": None, "length": None, "dim": None}

SELF_CACHE_AXES = ("layer", "batch", "length", "heads", "dim")
IMAGE_CACHE_AXES = ("layer", "batch", "length", "img_kv", "dim")  # FAULT


def to_spec(axes):
    return PartitionSpec(*(AXIS_TO_MESH.get(a) for a in axes))


def rms(x):
    xf = x.astype(jnp.float32)
    return (xf * lax.rsqrt(jnp.mean(xf * xf, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def grouped_attention(q, k, v, mask=None):
    b, h, d = q.shape
    q = q.reshape(b, KV_HEADS, h // KV_HEADS, d)
    s = jnp.einsum("bkgd,btkd->bkgt", q, k, preferred_element_type=jnp.float32) * d**-0.5
    if mask is not None:
        s = jnp.where(mask, s, -1e30)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgt,btkd->bkgd", p, v).reshape(b, h * d)


def decode_one(params, cache, image_cache, x, pos):
    visible = (jnp.arange(TEXT_LEN) <= pos)[None, None, None, :]

    def layer(x, scanned):
        p, ck, cv, ik, iv = scanned
        y = rms(x)
        q = (y @ p["self_q"]).reshape(BATCH, Q_HEADS, HEAD_DIM)
        k_new, v_new = jnp.split((y @ p["self_kv"]).reshape(BATCH, 1, 2 * KV_HEADS, HEAD_DIM), 2, axis=2)
        ck = lax.dynamic_update_slice_in_dim(ck, k_new, pos, axis=1)
        cv = lax.dynamic_update_slice_in_dim(cv, v_new, pos, axis=1)
        x = x + grouped_attention(q, ck, cv, visible) @ p["self_o"]
        q = (rms(x) @ p["cross_q"]).reshape(BATCH, Q_HEADS, HEAD_DIM)
        x = x + grouped_attention(q, ik, iv) @ p["cross_o"]
        x = x + jax.nn.silu(rms(x) @ p["ffn_in"]) @ p["ffn_out"]
        return x, (ck, cv)

    x, (k, v) = lax.scan(layer, x, (params, cache["k"], cache["v"], image_cache["k"], image_cache["v"]))
    return x, {"k": k, "v": v}


def build(devices, image_axes):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def spec(shape, axes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, to_spec(axes)))

    params = {n: spec(PARAM_SHAPES[n], PARAM_AXES[n]) for n in PARAM_SHAPES}
    text_kv = spec((LAYERS, BATCH, TEXT_LEN, KV_HEADS, HEAD_DIM), SELF_CACHE_AXES)
    image_kv = spec((LAYERS, BATCH, IMG_TOKENS, KV_HEADS, HEAD_DIM), image_axes)
    x = spec((BATCH, D_MODEL), ("batch", "embed"))
    pos = spec((), (), jnp.int32)
    cache_sharding = {"k": text_kv.sharding, "v": text_kv.sharding}
    fn = jax.jit(decode_one, donate_argnums=(1,), out_shardings=(x.sharding, cache_sharding))
    return fn, (params, {"k": text_kv, "v": text_kv}, {"k": image_kv, "v": image_kv}, x, pos)


def make_faulty(devices):
    return build(devices, IMAGE_CACHE_AXES)


def make_fixed(devices):
    return build(devices, SELF_CACHE_AXES)
