# mypy: ignore-errors
"""Clean. One decoding step of a chat model, tensor parallel over 4 chips: the kernels are split by
regex rules, the donated cache by key-value heads; tokens, norm scales and rotary tables are whole.
"""
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, WIDTH, HIDDEN, VOCAB = 10, 1536, 4096, 32_000
HEADS, KV_HEADS, HEAD_DIM = 12, 4, 128
BATCH, CONTEXT = 16, 4096
TOP_K = 40

# Kernels of the blocks have a leading axis of layers.
RULES = [
    (r"embed/table", P("tp", None)),
    (r"blocks/(wq|wk|wv|gate|up)$", P(None, None, "tp")),
    (r"blocks/(wo|down)$", P(None, "tp", None)),
    (r"unembed/kernel", P(None, "tp")),
    (r".*scale$", P()),
    (r"rotary/(sin|cos)$", P()),
]
CACHE = P(None, None, "tp", None, None)


def spec_for(path):
    name = "/".join(str(k.key) for k in path)
    for pattern, spec in RULES:
        if re.search(pattern, name):
            return spec
    raise KeyError(f"no rule for {name}")


def weight_shapes():
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    bf16, f32 = jnp.bfloat16, jnp.float32
    return {
        "embed": {"table": ((VOCAB, WIDTH), bf16)},
        "blocks": {
            "attn_scale": ((LAYERS, WIDTH), f32),
            "wq": ((LAYERS, WIDTH, q), bf16),
            "wk": ((LAYERS, WIDTH, kv), bf16),
            "wv": ((LAYERS, WIDTH, kv), bf16),
            "wo": ((LAYERS, q, WIDTH), bf16),
            "mlp_scale": ((LAYERS, WIDTH), f32),
            "gate": ((LAYERS, WIDTH, HIDDEN), bf16),
            "up": ((LAYERS, WIDTH, HIDDEN), bf16),
            "down": ((LAYERS, HIDDEN, WIDTH), bf16),
        },
        "final_scale": ((WIDTH,), f32),
        "unembed": {"kernel": ((WIDTH, VOCAB), bf16)},
        "rotary": {"sin": ((CONTEXT, HEAD_DIM // 2), f32), "cos": ((CONTEXT, HEAD_DIM // 2), f32)},
    }


def rms_norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def rotate(x, sin, cos):
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    sin, cos = sin[:, None, :], cos[:, None, :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def attend(q, keys, values, position):
    """q: (batch, heads, dim); keys and values: (batch, kv heads, context, dim)."""
    q = q.reshape(BATCH, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
    scores = jnp.einsum("bkgd,bktd->bkgt", q, keys, preferred_element_type=jnp.float32)
    past = jnp.arange(CONTEXT)[None, :] <= position[:, None]
    scores = jnp.where(past[:, None, None, :], scores * HEAD_DIM**-0.5, -1e30)
    weights = jax.nn.softmax(scores).astype(values.dtype)
    return jnp.einsum("bkgt,bktd->bkgd", weights, values).reshape(BATCH, HEADS * HEAD_DIM)


def decode(weights, cache, token, position, key):
    sin, cos = weights["rotary"]["sin"][position], weights["rotary"]["cos"][position]
    rows = jnp.arange(BATCH)

    def block(carry, layer):
        x, keys, values = carry
        index, w = layer
        y = rms_norm(x, w["attn_scale"])
        q = rotate((y @ w["wq"]).reshape(BATCH, HEADS, HEAD_DIM), sin, cos)
        k = rotate((y @ w["wk"]).reshape(BATCH, KV_HEADS, HEAD_DIM), sin, cos)
        v = (y @ w["wv"]).reshape(BATCH, KV_HEADS, HEAD_DIM)
        keys = keys.at[index, rows, :, position].set(k)
        values = values.at[index, rows, :, position].set(v)
        x = x + attend(q, keys[index], values[index], position) @ w["wo"]
        y = rms_norm(x, w["mlp_scale"])
        x = x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
        return (x, keys, values), None

    x = weights["embed"]["table"][token]
    carry = (x, cache["keys"], cache["values"])
    (x, keys, values), _ = lax.scan(block, carry, (jnp.arange(LAYERS), weights["blocks"]))
    logits = (rms_norm(x, weights["final_scale"]) @ weights["unembed"]["kernel"]).astype(jnp.float32)
    best, ids = lax.top_k(logits, TOP_K)
    choice = jax.random.categorical(key, best)
    token = jnp.take_along_axis(ids, choice[:, None], axis=1)[:, 0]
    return {"keys": keys, "values": values}, token, position + 1


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("tp",))

    def struct(shape, dtype, spec=P()):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = jax.tree_util.tree_map_with_path(
        lambda path, leaf: struct(*leaf, spec_for(path)),
        weight_shapes(), is_leaf=lambda x: isinstance(x, tuple),
    )
    lines = struct((LAYERS, BATCH, KV_HEADS, CONTEXT, HEAD_DIM), jnp.bfloat16, CACHE)
    cache = {"keys": lines, "values": lines}
    whole = NamedSharding(mesh, P())
    step = jax.jit(
        decode, donate_argnums=(1,),
        out_shardings=({"keys": lines.sharding, "values": lines.sharding}, whole, whole),
    )
    return step, (weights, cache, struct((BATCH,), jnp.int32), struct((BATCH,), jnp.int32), struct((2,), jnp.uint32))
