# mypy: ignore-errors
"""Clean. Megatron-style column and row parallel layers with a sequence-split residual stream, carried through a checkpointed loop."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, WIDTH, HIDDEN, BATCH, LENGTH = 8, 1024, 4096, 64, 1024

RULES = {
    "batch": "data",
    "length": "model",
    "hidden": "model",
    "width": None,
    "layer": None,
}


def logical(mesh, *names):
    return NamedSharding(mesh, P(*(RULES.get(name) for name in names)))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    stream = logical(mesh, "batch", "length", "width")
    wide = logical(mesh, "batch", None, "hidden")

    @jax.checkpoint
    def layer(x, w):
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        hidden = jax.nn.silu(h @ w["gate"]) * (h @ w["up"])
        hidden = jax.lax.with_sharding_constraint(hidden, wide)
        return jax.lax.with_sharding_constraint(x + hidden @ w["down"], stream), None

    def loss_fn(params, x, y):
        x, _ = jax.lax.scan(layer, x, params)
        return jnp.mean(jnp.square(x - y).astype(jnp.float32))

    def step(params, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    def struct(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    column = struct((LAYERS, WIDTH, HIDDEN), logical(mesh, "layer", "width", "hidden"))
    row = struct((LAYERS, HIDDEN, WIDTH), logical(mesh, "layer", "hidden", "width"))
    params = {"gate": column, "up": column, "down": row}
    x = struct((BATCH, LENGTH, WIDTH), stream)
    out = (jax.tree.map(lambda a: a.sharding, params), logical(mesh))
    return jax.jit(step, donate_argnums=0, out_shardings=out), (params, x, x)
