# mypy: ignore-errors
"""Fixed."""
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LATENT = 16
DIM = 1024
HEADS = 8
DEPTH = 6
FRAMES, SIDE = 16, 32
TOKENS = FRAMES * SIDE * SIDE
CHUNK = 256


def to_heads(x):
    """b t n h: from a slice of the tokens to a slice of the heads."""
    return constrain(x, P("data", None, "seq", None))


def to_tokens(x):
    """b t d: back to a slice of the tokens."""
    return constrain(x, P("data", "seq", None))


def layernorm(x):
    x32 = x.astype(jnp.float32)
    mean = x32.mean(-1, keepdims=True)
    return ((x32 - mean) * jax.lax.rsqrt(jnp.mean((x32 - mean) ** 2, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def attention(q, k, v):
    """Exact attention, CHUNK queries at a time."""
    b, t, n, h = q.shape
    blocks = jnp.moveaxis(q.reshape(b, t // CHUNK, CHUNK, n, h), 1, 0)

    def one(q):
        scores = jnp.einsum("bqnh,bknh->bnqk", q, k, preferred_element_type=jnp.float32) * h**-0.5
        return jnp.einsum("bnqk,bknh->bqnh", jax.nn.softmax(scores, -1).astype(v.dtype), v)

    return jnp.moveaxis(jax.lax.map(one, blocks), 0, 1).reshape(b, t, n * h)


def dit_block(cond, x, w):
    b, t, d = x.shape
    shift1, scale1, gate1, shift2, scale2, gate2 = jnp.split((jax.nn.silu(cond) @ w["ada"])[:, None], 6, -1)
    h = layernorm(x) * (1 + scale1) + shift1
    q, k, v = (to_heads((h @ w[name]).reshape(b, t, HEADS, d // HEADS)) for name in ("q", "k", "v"))
    x = x + gate1 * (to_tokens(attention(q, k, v)) @ w["proj"])
    h = layernorm(x) * (1 + scale2) + shift2
    x = x + gate2 * (jax.nn.gelu(h @ w["fc1"]) @ w["fc2"])
    return to_tokens(x), None


def velocity(params, latents, t):
    freqs = jnp.exp(-jnp.arange(DIM // 2) * jnp.log(1e4) / (DIM // 2))
    angles = t[:, None] * freqs * 1000
    cond = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1).astype(jnp.bfloat16) @ params["time"]
    x = to_tokens(latents.astype(jnp.bfloat16) @ params["patch"] + params["pos"])
    x, _ = jax.lax.scan(functools.partial(dit_block, cond), x, params["blocks"])
    return (layernorm(x) @ params["unpatch"]).astype(jnp.float32)


def euler_step(params, latents, t, dt):
    """One step of the rectified flow with classifier-free guidance already folded into the batch."""
    v = velocity(params, latents, t)
    return latents + dt * v


SHAPES = {
    "time": ((DIM, DIM), P("seq", None)),
    "patch": ((LATENT, DIM), P()),
    "unpatch": ((DIM, LATENT), P()),
    "pos": ((TOKENS, DIM), P("seq", None)),
    "blocks": {
        "ada": ((DEPTH, DIM, 6 * DIM), P(None, ("data", "seq"), None)),
        "q": ((DEPTH, DIM, DIM), P(None, ("data", "seq"), None)),
        "k": ((DEPTH, DIM, DIM), P(None, ("data", "seq"), None)),
        "v": ((DEPTH, DIM, DIM), P(None, ("data", "seq"), None)),
        "proj": ((DEPTH, DIM, DIM), P(None, ("data", "seq"), None)),
        "fc1": ((DEPTH, DIM, 4 * DIM), P(None, ("data", "seq"), None)),
        "fc2": ((DEPTH, 4 * DIM, DIM), P(None, ("data", "seq"), None)),
    },
}


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "seq"))
    jax.set_mesh(mesh)
    arg = lambda shape, spec, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    is_leaf = lambda s: isinstance(s, tuple)
    params = jax.tree.map(lambda s: arg(s[0], s[1], jnp.bfloat16), SHAPES, is_leaf=is_leaf)
    latents = arg((4, TOKENS, LATENT), P("data", "seq", None), jnp.float32)
    t = arg((4,), P("data"), jnp.float32)
    dt = arg((), P(), jnp.float32)
    return jax.jit(euler_step, donate_argnums=1, out_shardings=P("data", "seq", None)), (params, latents, t, dt)
