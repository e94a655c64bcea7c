# mypy: ignore-errors
"""Fault: gathered. The remat policy saves every named value but the attention scores, and the
gathered kernels are named too: each layer's whole weights are kept until the backward pass.
"""
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CONFIG = dict(
    width=1024, heads=16, hidden=4096, layers=12,
    variables=24, patch=4, grid=(32, 64), batch=32,
    lr=2e-4, beta1=0.9, beta2=0.95, decay=0.05,
)
FSDP = "fsdp"


def parameter_shapes(c):
    d, h, n = c["width"], c["hidden"], c["layers"]
    pixels = c["variables"] * c["patch"] ** 2
    tokens = math.prod(c["grid"]) // c["patch"] ** 2
    return {
        "patch_in": (pixels, d),
        "positions": (tokens, d),
        "patch_out": (d, pixels),
        "blocks": {
            "scale_attn": (n, d), "wqkv": (n, d, 3 * d), "wo": (n, d, d),
            "scale_mlp": (n, d), "w1": (n, d, h), "w2": (n, h, d),
        },
    }


def parameter_specs(shapes):
    """Kernels are split along their input axis, inside the stack of layers; scales are whole."""

    def spec(path, shape):
        stacked = path[0].key == "blocks"
        if len(shape) - stacked < 2:
            return P()
        return P(None, FSDP) if stacked else P(FSDP)

    return jax.tree_util.tree_map_with_path(spec, shapes, is_leaf=lambda s: isinstance(s, tuple))


def gather(kernel):
    full = jax.lax.all_gather(kernel.astype(jnp.bfloat16), FSDP, axis=0, tiled=True)
    return checkpoint_name(full, "kernel")


def rms(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


def attention(x, w, heads):
    b, t, d = x.shape
    qkv = jnp.dot(x, gather(w["wqkv"])).reshape(b, t, 3, heads, d // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / math.sqrt(d // heads)
    weights = checkpoint_name(jax.nn.softmax(scores).astype(x.dtype), "scores")
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d)
    return checkpoint_name(jnp.dot(mixed, gather(w["wo"])), "attn_out")


def mlp(x, w):
    return jnp.dot(jax.nn.gelu(jnp.dot(x, gather(w["w1"]))), gather(w["w2"]))


def to_patches(fields, c):
    b, (gh, gw), p = fields.shape[0], c["grid"], c["patch"]
    x = fields.reshape(b, gh // p, p, gw // p, p, c["variables"])
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, (gh // p) * (gw // p), -1)


def forecast(params, fields, c):
    keep = jax.checkpoint_policies.save_any_names_but_these("scores")  # FAULT

    @functools.partial(jax.checkpoint, policy=keep)
    def block(x, w):
        x = x + attention(rms(x, w["scale_attn"]), w, c["heads"])
        x = x + mlp(rms(x, w["scale_mlp"]), w)
        return x, None

    x = to_patches(fields, c).astype(jnp.bfloat16)
    x = jnp.dot(x, gather(params["patch_in"])) + gather(params["positions"])
    x, _ = jax.lax.scan(block, x, params["blocks"])
    return jnp.dot(x, gather(params["patch_out"])).astype(jnp.float32)


def adamw(p, g, m, v, step, c):
    m = c["beta1"] * m + (1 - c["beta1"]) * g
    v = c["beta2"] * v + (1 - c["beta2"]) * g * g
    mhat, vhat = m / (1 - c["beta1"] ** step), v / (1 - c["beta2"] ** step)
    return p - c["lr"] * (mhat / (jnp.sqrt(vhat) + 1e-8) + c["decay"] * p), m, v


def local_step(params, mu, nu, step, now, later, *, c):
    """Runs on each device with its shard of the state and its part of the batch."""

    def loss_fn(params):
        error = forecast(params, now, c) - to_patches(later - now, c)
        return jax.lax.pmean(jnp.mean(error * error), FSDP)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    flat, treedef = jax.tree.flatten(params)
    parts = zip(flat, *(treedef.flatten_up_to(t) for t in (grads, mu, nu)))
    new = [adamw(p, g, m, v, step + 1.0, c) for p, g, m, v in parts]
    params, mu, nu = (treedef.unflatten(leaves) for leaves in zip(*new))
    return params, mu, nu, step + 1.0, loss


def make_faulty(devices):
    c = CONFIG
    mesh = Mesh(np.array(devices).reshape(-1), (FSDP,))
    shapes = parameter_shapes(c)
    specs = parameter_specs(shapes)
    step = jax.shard_map(
        functools.partial(local_step, c=c),
        mesh=mesh,
        in_specs=(specs, specs, specs, P(), P(FSDP), P(FSDP)),
        out_specs=(specs, specs, specs, P(), P()),
    )

    def struct(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    state = jax.tree.map(struct, shapes, specs, is_leaf=lambda s: isinstance(s, tuple))
    fields = struct((c["batch"], *c["grid"], c["variables"]), P(FSDP))
    return jax.jit(step, donate_argnums=(0, 1, 2, 3)), (state, state, state, struct((), P()), fields, fields)
