# mypy: ignore-errors
"""Fault: gathered. The layers all-gather their weights inside the scan of a shard_map, without rematerialisation, so
the gathered weights of every layer are stacked as residuals until the backward pass has used them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

AMINO, DIM, FF, LAYERS, KERNEL = 32, 1024, 4096, 8, 9
BATCH, LENGTH = 16, 256

SHAPES = {
    "embed": (AMINO, DIM),
    "conv": (LAYERS, KERNEL, DIM),
    "w_in": (LAYERS, DIM, FF),
    "w_out": (LAYERS, FF, DIM),
}
SPECS = {
    "embed": P(),
    "conv": P(),
    "w_in": P(None, "dp", None),
    "w_out": P(None, "dp", None),
}


def whole(w):
    return jax.lax.all_gather(w.astype(jnp.bfloat16), "dp", axis=0, tiled=True)  # FAULT


def depthwise(x, taps):
    pad = KERNEL // 2
    padded = jnp.pad(x, ((0, 0), (pad, pad), (0, 0)))
    return sum(padded[:, i : i + x.shape[1]] * taps[i].astype(x.dtype) for i in range(KERNEL))


def normalise(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(x, w):  # FAULT
    x = x + depthwise(normalise(x), w["conv"])
    h = jax.nn.gelu(normalise(x) @ whole(w["w_in"]))
    return x + h @ whole(w["w_out"]), None


def local_loss(params, tokens, masked):
    """Masked residue prediction on this device's proteins."""
    inputs = jnp.where(masked, AMINO - 1, tokens)
    x = params["embed"].astype(jnp.bfloat16)[inputs]
    stack = {k: params[k] for k in ("conv", "w_in", "w_out")}
    x, _ = jax.lax.scan(layer, x, stack)  # FAULT
    logits = (normalise(x) @ params["embed"].T.astype(x.dtype)).astype(jnp.float32)
    nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return jnp.sum(nll * masked) / (BATCH * LENGTH * 0.15)


def local_step(params, momentum, tokens, masked):
    loss, grads = jax.value_and_grad(local_loss)(params, tokens, masked)
    for name in ("embed", "conv"):
        grads[name] = jax.lax.psum(grads[name], "dp")
    momentum = jax.tree.map(lambda m, g: 0.95 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 3e-4 * jnp.sign(m), params, momentum)
    return params, momentum, jax.lax.psum(loss, "dp")


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    rows = P("dp", None)
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(SPECS, SPECS, rows, rows),
        out_specs=(SPECS, SPECS, P()),
        check_vma=False,
    )

    def struct(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {k: struct(SHAPES[k], SPECS[k]) for k in SHAPES}
    tokens = struct((BATCH, LENGTH), rows, jnp.int32)
    masked = struct((BATCH, LENGTH), rows, jnp.bool_)
    train = functools.partial(jax.jit, donate_argnums=(0, 1))(step)
    return train, (params, params, tokens, masked)
