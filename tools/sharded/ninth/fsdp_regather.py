# mypy: ignore-errors
"""Clean. FSDP over all sixteen chips: each layer's weights are gathered in a checkpointed loop body, dropped, and gathered again in the backward pass; moments follow the parameters."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, WIDTH, HIDDEN, BATCH, LENGTH = 32, 1024, 4096, 32, 256
TX = optax.lion(1e-4)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())
    split = NamedSharding(mesh, P("fsdp"))
    stacked = NamedSharding(mesh, P(None, "fsdp"))

    @jax.checkpoint
    def layer(x, w):
        w = jax.lax.with_sharding_constraint(w, whole)
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        h = jnp.cumsum(h, axis=1) / LENGTH
        x = x + jax.nn.gelu(h @ w["up"]) @ w["down"]
        return jax.lax.with_sharding_constraint(x, split), None

    def loss_fn(params, x, y):
        x, _ = jax.lax.scan(layer, x, params)
        return jnp.mean(jnp.square(x - y).astype(jnp.float32))

    def step(params, moments, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, moments = TX.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    def struct(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    params = {
        "up": struct((LAYERS, WIDTH, HIDDEN), stacked),
        "down": struct((LAYERS, HIDDEN, WIDTH), stacked),
    }
    moments = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(
            a.shape, a.dtype, sharding=stacked if a.ndim == 3 else whole
        ),
        jax.eval_shape(TX.init, params),
    )
    x = struct((BATCH, LENGTH, WIDTH), split)
    out = jax.tree.map(lambda a: a.sharding, (params, moments))
    step = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, whole))
    return step, (params, moments, x, x)
