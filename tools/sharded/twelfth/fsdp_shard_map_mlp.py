# mypy: ignore-errors
"""Fault: gathered. The checkpoint policy saves the weights that the layers gathered, so every
layer's whole weights are kept from the forward pass until the backward pass."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HIDDEN, CLASSES = 12, 1024, 4096, 1024
BATCH = 4096
AXIS = "fsdp"

SAVED = (
    "block_input",
    "block_hidden",
    "gathered",  # FAULT
)

SPECS = {
    "up": P(None, AXIS, None),
    "down": P(None, AXIS, None),
    "scale": P(None, None),
    "head": P(AXIS, None),
}


def gather(shard):
    """The whole matrix in bfloat16 from this device's rows; its gradient is scattered back."""
    whole = jax.lax.all_gather(shard.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)
    return checkpoint_name(whole, "gathered")


def block(x, layer):
    x = checkpoint_name(x, "block_input")
    variance = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    normed = x * jax.lax.rsqrt(variance + 1e-6).astype(x.dtype) * layer["scale"].astype(x.dtype)
    hidden = checkpoint_name(normed @ gather(layer["up"]), "block_hidden")
    return x + jax.nn.gelu(hidden) @ gather(layer["down"]), None


def local_loss(params, features, labels):
    policy = jax.checkpoint_policies.save_only_these_names(*SAVED)  # FAULT
    body = jax.checkpoint(block, policy=policy, prevent_cse=False)
    layers = {n: params[n] for n in ("up", "down", "scale")}
    x, _ = jax.lax.scan(body, features.astype(jnp.bfloat16), layers)
    logits = (x @ gather(params["head"])).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def sharded_step(params, momentum, features, labels, *, lr, beta):
    loss, grads = jax.value_and_grad(local_loss)(params, features, labels)
    devices = jax.lax.axis_size(AXIS)
    loss = jax.lax.pmean(loss, AXIS)
    grads = {
        n: jax.lax.pmean(g, AXIS) if n == "scale" else g / devices for n, g in grads.items()
    }
    momentum = {n: beta * momentum[n] + g for n, g in grads.items()}
    params = {n: p - lr * momentum[n] for n, p in params.items()}
    return params, momentum, loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4), (AXIS,))
    shapes = {
        "up": (LAYERS, DIM, HIDDEN),
        "down": (LAYERS, HIDDEN, DIM),
        "scale": (LAYERS, DIM),
        "head": (DIM, CLASSES),
    }
    params = {
        n: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, SPECS[n]))
        for n, s in shapes.items()
    }
    by_row = NamedSharding(mesh, P(AXIS))
    features = jax.ShapeDtypeStruct((BATCH, DIM), jnp.bfloat16, sharding=by_row)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=by_row)
    step = jax.shard_map(
        functools.partial(sharded_step, lr=0.1, beta=0.9),
        mesh=mesh,
        in_specs=(SPECS, SPECS, P(AXIS), P(AXIS)),
        out_specs=(SPECS, SPECS, P()),
        check_vma=False,
    )
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, features, labels)
