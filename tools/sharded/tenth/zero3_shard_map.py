# mypy: ignore-errors
"""Fault: gathered. Each layer gathers its weights inside the scan and nothing rematerialises them, so
the whole of every layer's weights is kept on every device until the backward pass."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

DEPTH, WIDTH, HIDDEN, BATCH = 8, 1024, 4096, 2048
AXIS = "fsdp"


def unshard(w):
    return lax.all_gather(w.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)


def rms(x):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def residual_block(x, layer):
    gate, up, down = (unshard(layer[k]) for k in ("gate", "up", "down"))  # FAULT
    h = rms(x)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down, None


def local_loss(layers, x, y):
    x, _ = lax.scan(residual_block, x, layers)  # FAULT
    err = (x - y).astype(jnp.float32)
    return lax.pmean(jnp.mean(err * err), AXIS)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    weight_spec = {k: P(None, AXIS, None) for k in ("gate", "up", "down")}
    sharded_loss = jax.shard_map(
        local_loss,
        mesh=mesh,
        in_specs=(weight_spec, P(AXIS), P(AXIS)),
        out_specs=P(),
        check_vma=False,
    )

    def sgd_step(layers, momentum, x, y):
        loss, grads = jax.value_and_grad(sharded_loss)(layers, x, y)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        layers = jax.tree.map(lambda w, m: w - 1e-3 * m, layers, momentum)
        return layers, momentum, loss

    shapes = {
        "gate": (DEPTH, WIDTH, HIDDEN),
        "up": (DEPTH, WIDTH, HIDDEN),
        "down": (DEPTH, HIDDEN, WIDTH),
    }
    layers = {
        k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, weight_spec[k]))
        for k, s in shapes.items()
    }
    rows = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, P(AXIS)))
    return jax.jit(sgd_step, donate_argnums=(0, 1)), (layers, dict(layers), rows, rows)
