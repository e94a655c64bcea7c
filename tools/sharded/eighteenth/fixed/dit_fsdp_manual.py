# mypy: ignore-errors
"""Clean. Each block gathers its weights inside the checkpointed function and again in the backward pass.

Rectified-flow training of a diffusion transformer (adaLN-Zero) with hand-written ZeRO-3: everything
runs inside one shard_map over the 16 chips, all_gather forward and psum_scatter backward.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

AX = "z"
DIM, HEADS, DEPTH, MLP = 768, 12, 12, 3072
PATCH_TOKENS, PATCH_DIM, CLASSES = 256, 16, 1000
GLOBAL_BATCH = 32
B1, B2, EPS, LR = 0.9, 0.99, 1e-8, 1e-4


def shapes():
    blocks = {
        "mod": (DEPTH, DIM, 6 * DIM),
        "qkv": (DEPTH, DIM, 3 * DIM),
        "proj": (DEPTH, DIM, DIM),
        "fc1": (DEPTH, DIM, MLP),
        "fc2": (DEPTH, MLP, DIM),
    }
    outer = {
        "patch": (PATCH_DIM, DIM),
        "label": (1008, DIM),  # CLASSES, the null label, padding
        "time": (256, DIM),
        "final_mod": (DIM, 2 * DIM),
        "final": (DIM, PATCH_DIM),
    }
    return {"blocks": blocks, "outer": outer}


def specs():
    return jax.tree.map(
        lambda s: P(None, AX) if len(s) == 3 else P(AX), shapes(), is_leaf=lambda s: isinstance(s, tuple)
    )


@jax.custom_vjp
def unshard(w):
    """Full bfloat16 weight from my slice of its first dimension."""
    return lax.all_gather(w.astype(jnp.bfloat16), AX, axis=0, tiled=True)


def _unshard_fwd(w):
    return unshard(w), None


def _unshard_bwd(_, g):
    return (lax.psum_scatter(g.astype(jnp.float32), AX, scatter_dimension=0, tiled=True),)


unshard.defvjp(_unshard_fwd, _unshard_bwd)


def plain_norm(x):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def fourier(t, dim):
    freqs = jnp.exp(-math.log(1e4) * jnp.arange(dim // 2) / (dim // 2))
    ang = 1000.0 * t[:, None] * freqs
    return jnp.concatenate([jnp.cos(ang), jnp.sin(ang)], -1).astype(jnp.bfloat16)


def block(w, x, c):
    b, n, d = x.shape
    s1, k1, g1, s2, k2, g2 = jnp.split((jax.nn.silu(c) @ w["mod"])[:, None], 6, axis=-1)
    y = plain_norm(x) * (1 + k1) + s1
    q, k, v = jnp.split((y @ w["qkv"]).reshape(b, n, HEADS, 3 * d // HEADS), 3, axis=-1)
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // HEADS) ** -0.5
    att = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits).astype(v.dtype), v)
    x = x + g1 * (att.reshape(b, n, d) @ w["proj"])
    y = plain_norm(x) * (1 + k2) + s2
    return x + g2 * (jax.nn.gelu(y @ w["fc1"]) @ w["fc2"])


def velocity(params, noisy, t, labels):
    outer = jax.tree.map(unshard, params["outer"])
    c = fourier(t, 256) @ outer["time"] + outer["label"][labels]
    x = noisy.astype(jnp.bfloat16) @ outer["patch"]

    def gathered_block(slices, x, c):
        return block(jax.tree.map(unshard, slices), x, c)

    run_block = jax.checkpoint(gathered_block, prevent_cse=False)

    def body(x, slices):
        return run_block(slices, x, c), None

    x, _ = lax.scan(body, x, params["blocks"])
    shift, scale = jnp.split((jax.nn.silu(c) @ outer["final_mod"])[:, None], 2, axis=-1)
    return (plain_norm(x) * (1 + scale) + shift) @ outer["final"]


def local_loss(params, images, labels, noise, t):
    noisy = (1 - t)[:, None, None] * images + t[:, None, None] * noise
    pred = velocity(params, noisy, t, labels).astype(jnp.float32)
    return jnp.sum(jnp.square(pred - (noise - images))) / (GLOBAL_BATCH * PATCH_TOKENS * PATCH_DIM)


def adam(p, m, v, g, count):
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * g * g
    mhat, vhat = m / (1 - B1**count), v / (1 - B2**count)
    return p - LR * mhat / (jnp.sqrt(vhat) + EPS), m, v


def local_step(state, images, labels, key_data):
    key = jax.random.fold_in(jax.random.wrap_key_data(key_data), lax.axis_index(AX))
    k1, k2 = jax.random.split(key)
    noise = jax.random.normal(k1, images.shape)
    t = jax.nn.sigmoid(jax.random.normal(k2, images.shape[:1]))
    loss, grads = jax.value_and_grad(local_loss)(state["params"], images, labels, noise, t)
    count = state["count"] + 1
    out = jax.tree.map(
        lambda p, m, v, g: adam(p, m, v, g, count), state["params"], state["m"], state["v"], grads
    )
    p, m, v = (jax.tree.map(lambda o, i=i: o[i], out, is_leaf=lambda o: isinstance(o, tuple)) for i in range(3))
    return {"params": p, "m": m, "v": v, "count": count}, lax.psum(loss, AX)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(16), (AX,))
    state_specs = {"params": specs(), "m": specs(), "v": specs(), "count": P()}
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(state_specs, P(AX), P(AX), P()),
        out_specs=(state_specs, P()),
        check_vma=False,
    )

    def put(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    def weights():
        return jax.tree.map(put, shapes(), specs(), is_leaf=lambda s: isinstance(s, tuple) and not isinstance(s, P))

    state = {"params": weights(), "m": weights(), "v": weights(), "count": put((), P())}
    images = put((GLOBAL_BATCH, PATCH_TOKENS, PATCH_DIM), P(AX))
    labels = put((GLOBAL_BATCH,), P(AX), jnp.int32)
    return jax.jit(step, donate_argnums=0), (state, images, labels, put((2,), P(), jnp.uint32))
