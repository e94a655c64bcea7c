# mypy: ignore-errors
"""Clean. The remat policy keeps the activations only; the weights are gathered again for the backward pass.

Patch transformer for many electricity load series, FSDP written by hand: one shard_map over 16 chips, each
layer gathers its weights, autodiff turns the gathers into reduce-scatters.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

WIDTH, FFN, HEADS, LAYERS = 1024, 4096, 16, 8
SERIES, PATCHES, PATCH, HORIZON = 64, 256, 32, 96
AXIS = "fsdp"

SAVED = ("attention_out", "mlp_out")

SHAPES = {
    "patch_in": (PATCH, WIDTH),
    "layers": {
        "qkv": (LAYERS, WIDTH, 3 * WIDTH),
        "out": (LAYERS, WIDTH, WIDTH),
        "up": (LAYERS, WIDTH, FFN),
        "down": (LAYERS, FFN, WIDTH),
    },
    "head": (WIDTH, 3 * HORIZON),
}


def spec_for(shape):
    return P(None, AXIS, None) if len(shape) == 3 else P(AXIS, None)


def fetch(w):
    whole = jax.lax.all_gather(w.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)
    return checkpoint_name(whole, "weight")


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(x, p):
    b, t, d = x.shape
    q, k, v = (y.reshape(b, t, HEADS, -1) for y in jnp.split(norm(x) @ fetch(p["qkv"]), 3, axis=-1))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
    x = x + checkpoint_name(y @ fetch(p["out"]), "attention_out")
    y = jax.nn.gelu(norm(x) @ fetch(p["up"]))
    return x + checkpoint_name(y @ fetch(p["down"]), "mlp_out"), None


def quantile_loss(params, history, future):
    scale = jnp.mean(jnp.abs(history), axis=1, keepdims=True) + 1e-3
    patches = (history / scale).reshape(history.shape[0], PATCHES, PATCH)
    x = patches.astype(jnp.bfloat16) @ fetch(params["patch_in"])
    policy = jax.checkpoint_policies.save_only_these_names(*SAVED)
    x, _ = jax.lax.scan(jax.checkpoint(layer, policy=policy), x, params["layers"])
    y = (norm(x[:, -1]) @ fetch(params["head"])).astype(jnp.float32)
    y = y.reshape(-1, HORIZON, 3)
    error = (future / scale)[..., None] - y
    levels = jnp.array([0.1, 0.5, 0.9])
    return jnp.mean(jnp.maximum(levels * error, (levels - 1) * error))


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(16), (AXIS,))
    tx = optax.adamw(2e-4, weight_decay=0.05)
    leaf = {"is_leaf": lambda s: isinstance(s, tuple)}
    specs = jax.tree.map(spec_for, SHAPES, **leaf)
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), SHAPES, **leaf)
    opt_state = jax.eval_shape(tx.init, params)
    opt_specs = jax.tree.map(lambda x: spec_for(x.shape) if x.ndim else P(), opt_state)

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(specs, opt_specs, P(AXIS), P(AXIS)),
        out_specs=(specs, opt_specs, P()),
        check_vma=False,
    )
    def train_step(params, opt_state, history, future):
        loss, grads = jax.value_and_grad(quantile_loss)(params, history, future)
        grads = jax.tree.map(lambda g: g / mesh.size, grads)  # the reduce-scatters summed
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, jax.lax.pmean(loss, AXIS)

    def put(x, spec):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    history = put(jax.ShapeDtypeStruct((SERIES, PATCHES * PATCH), jnp.float32), P(AXIS))
    future = put(jax.ShapeDtypeStruct((SERIES, HORIZON), jnp.float32), P(AXIS))
    args = (jax.tree.map(put, params, specs), jax.tree.map(put, opt_state, opt_specs), history, future)
    return jax.jit(train_step, donate_argnums=(0, 1)), args
