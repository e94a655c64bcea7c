# mypy: ignore-errors
"""Clean. Fully sharded weights, gathered a layer at a time inside a checkpointed scan and gathered
again in the backward pass; momentum is split as the weights are."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

DEPTH, WIDTH, HIDDEN, BATCH, SEQ = 16, 2048, 4096, 32, 256


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    stored = NamedSharding(mesh, P(None, "fsdp", None))
    whole = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("fsdp", None, None))

    @jax.checkpoint
    def layer(x, shard):
        w = jax.tree.map(
            lambda a: lax.with_sharding_constraint(a.astype(jnp.bfloat16), whole), shard
        )
        h = jax.nn.gelu(x @ w["up"]) @ w["down"]
        return lax.with_sharding_constraint(x + h, rows), None

    def loss_fn(weights, x, y):
        out, _ = lax.scan(layer, x, weights)
        return jnp.mean((out - y).astype(jnp.float32) ** 2)

    def step(weights, momentum, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(weights, x, y)
        momentum = jax.tree.map(lambda m, g: 0.95 * m + g, momentum, grads)
        weights = jax.tree.map(lambda w, m: w - 1e-2 * m, weights, momentum)
        return weights, momentum, loss

    weights = {
        "up": jax.ShapeDtypeStruct((DEPTH, WIDTH, HIDDEN), jnp.float32, sharding=stored),
        "down": jax.ShapeDtypeStruct((DEPTH, HIDDEN, WIDTH), jnp.float32, sharding=stored),
    }
    x = jax.ShapeDtypeStruct((BATCH, SEQ, WIDTH), jnp.bfloat16, sharding=rows)
    out = ({"up": stored, "down": stored},) * 2 + (whole,)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (weights, dict(weights), x, x)
