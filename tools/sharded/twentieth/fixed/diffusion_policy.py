# mypy: ignore-errors
"""Clean. The backward pass gathers every layer's weights again; of a layer only the attention's output is saved.

Diffusion policy for a robot arm: a transformer denoises chunks of actions, conditioned on camera features.
Fully sharded data parallelism by hand, in one shard_map; the layers are scanned.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, WIDTH, HIDDEN, HEADS = 16, 768, 3072, 12
BATCH, HORIZON, ACTION, CAMERA_TOKENS, CAMERA = 64, 32, 14, 96, 512
AXIS = "fsdp"

remat_policy = jax.checkpoint_policies.save_only_these_names("attention")


def parameter_shapes():
    n, d, f = LAYERS, WIDTH, HIDDEN
    return {
        "camera": (CAMERA, d),
        "action_in": (ACTION, d),
        "time": (256, d),
        "layers": {
            "qkv": (n, d, 3 * d),
            "project": (n, d, d),
            "modulate": (n, d, 4 * d),
            "up": (n, d, f),
            "down": (n, f, d),
        },
        "action_out": (d, ACTION),
    }


def spec_of(shape):
    if shape[-2] % 4:
        return P()
    return P(*(None,) * (len(shape) - 2), AXIS)


def fetch(weight):
    """The whole matrix out of the rows that lie on the devices, in bfloat16."""
    whole = lax.all_gather(weight.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)
    return checkpoint_name(whole, "kernel")


def unit(x):
    y = x.astype(jnp.float32)
    return ((y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def attend(x, qkv, project):
    b, t, d = x.shape
    q, k, v = ((x @ qkv).reshape(b, t, 3, HEADS, -1)[:, :, i] for i in range(3))
    y = jax.nn.dot_product_attention(q, k, v)
    return checkpoint_name(y.reshape(b, t, d), "attention") @ project


@functools.partial(jax.checkpoint, policy=remat_policy, prevent_cse=False)
def layer(carry, w):
    x, condition = carry
    a, b, c, d = jnp.split((condition @ fetch(w["modulate"]))[:, None], 4, axis=-1)
    x = x + attend(unit(x) * (1 + a) + b, fetch(w["qkv"]), fetch(w["project"]))
    x = x + jax.nn.gelu((unit(x) * (1 + c) + d) @ fetch(w["up"])) @ fetch(w["down"])
    return (x, condition), None


def time_features(t):
    frequency = jnp.exp(-jnp.log(1e4) * jnp.arange(128) / 128)
    angle = t[:, None] * frequency
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1).astype(jnp.bfloat16)


def predict(params, camera, noisy, t):
    seen = camera.astype(jnp.bfloat16) @ fetch(params["camera"])
    tokens = noisy.astype(jnp.bfloat16) @ params["action_in"].astype(jnp.bfloat16)
    condition = jax.nn.silu(time_features(t) @ fetch(params["time"]))
    x = jnp.concatenate([seen, tokens], axis=1)
    (x, _), _ = lax.scan(layer, (x, condition), params["layers"])
    return (unit(x)[:, -HORIZON:] @ fetch(params["action_out"])).astype(jnp.float32)


def local_step(params, momentum, camera, actions, noise, t):
    def loss_fn(params):
        keep = jnp.cos(0.5 * jnp.pi * t / 1000.0)[:, None, None] ** 2
        noisy = jnp.sqrt(keep) * actions + jnp.sqrt(1 - keep) * noise
        return jnp.mean((predict(params, camera, noisy, t) - noise) ** 2) / lax.axis_size(AXIS)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    grads["action_in"] = lax.psum(grads["action_in"], AXIS)  # the others come reduced out of the gather
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
    return params, momentum, lax.psum(loss, AXIS)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    tuples = {"is_leaf": lambda s: isinstance(s, tuple)}
    specs = jax.tree.map(spec_of, parameter_shapes(), **tuples)

    def arg(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(lambda s: arg(s, spec_of(s)), parameter_shapes(), **tuples)
    rows = P(AXIS)
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(specs, specs, rows, rows, rows, rows),
        out_specs=(specs, specs, P()),
        check_vma=False,
    )
    batch = (
        arg((BATCH, CAMERA_TOKENS, CAMERA), rows),
        arg((BATCH, HORIZON, ACTION), rows),
        arg((BATCH, HORIZON, ACTION), rows),
        arg((BATCH,), rows),
    )
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, *batch)
