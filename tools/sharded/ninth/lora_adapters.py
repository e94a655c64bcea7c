# mypy: ignore-errors
"""Clean. LoRA: the frozen base weights are split over "fsdp" and gathered layer by layer in a checkpointed loop; only the small adapters and their moments are replicated."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, WIDTH, HIDDEN, RANK, BATCH, LENGTH = 12, 1024, 4096, 8, 16, 256
TX = optax.adam(1e-4)


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())
    batch = NamedSharding(mesh, P("fsdp"))
    stacked = NamedSharding(mesh, P(None, "fsdp"))

    def layer(x, weights):
        base, lora = weights
        base = jax.lax.with_sharding_constraint(base, whole)
        h = norm(x)
        up = h @ base["up"] + (h @ lora["up_a"]) @ lora["up_b"]
        h = jax.nn.gelu(up)
        x = x + h @ base["down"] + (h @ lora["down_a"]) @ lora["down_b"]
        return jax.lax.with_sharding_constraint(x, batch), None

    def loss_fn(lora, base, x, y):
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, (base, lora))
        return jnp.mean(jnp.square(norm(x) - y).astype(jnp.float32))

    def step(lora, opt_state, base, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(lora, base, x, y)
        updates, opt_state = TX.update(grads, opt_state)
        return optax.apply_updates(lora, updates), opt_state, loss

    def struct(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    base = {
        "up": struct((LAYERS, WIDTH, HIDDEN), stacked),
        "down": struct((LAYERS, HIDDEN, WIDTH), stacked),
    }
    lora = {
        "up_a": struct((LAYERS, WIDTH, RANK), whole),
        "up_b": struct((LAYERS, RANK, HIDDEN), whole),
        "down_a": struct((LAYERS, HIDDEN, RANK), whole),
        "down_b": struct((LAYERS, RANK, WIDTH), whole),
    }
    opt_state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole),
        jax.eval_shape(TX.init, lora),
    )
    x = struct((BATCH, LENGTH, WIDTH), batch)
    step = jax.jit(step, donate_argnums=(0, 1), out_shardings=whole)
    return step, (lora, opt_state, base, x, x)
