# mypy: ignore-errors
"""Clean. Low-rank fine-tuning: the frozen weights are split and gathered layer by layer under a checkpoint, the small
adapters and their Adam state are whole on every chip."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, FF, LAYERS, RANK, VOCAB = 1024, 4096, 12, 8, 8192
BATCH, SEQ = 8, 512


class Frozen(eqx.Module):
    embed: jax.Array
    mix: jax.Array
    up: jax.Array
    down: jax.Array


class Adapter(eqx.Module):
    a: jax.Array
    b: jax.Array

    def __call__(self, x):
        return (x @ self.a.astype(x.dtype)) @ self.b.astype(x.dtype)


class Adapters(eqx.Module):
    up: Adapter
    down: Adapter


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def causal_mean(x, mix):
    """Token mixing by a running mean of projected tokens."""
    count = jnp.arange(1, x.shape[1] + 1, dtype=jnp.float32)[None, :, None]
    return (jnp.cumsum((x @ mix).astype(jnp.float32), axis=1) / count).astype(x.dtype)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("fsdp"))
    split = NamedSharding(mesh, P(None, "fsdp", None))
    tx = optax.adam(1e-4)

    def gather(w):
        return jax.lax.with_sharding_constraint(w, whole)

    def loss_fn(adapters, frozen, tokens):
        table = gather(frozen.embed)
        x = jax.lax.with_sharding_constraint(table[tokens], rows)

        @jax.checkpoint
        def layer(x, scanned):
            mix, up, down, lora = scanned
            x = x + causal_mean(norm(x), gather(mix))
            y = norm(x)
            h = jax.nn.gelu(y @ gather(up) + lora.up(y))
            x = x + h @ gather(down) + lora.down(h)
            return jax.lax.with_sharding_constraint(x, rows), None

        x, _ = jax.lax.scan(layer, x, (frozen.mix, frozen.up, frozen.down, adapters))
        logits = (norm(x) @ table.T).astype(jnp.float32)
        labels = jnp.roll(tokens, -1, axis=1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)[:, :-1].mean()

    def step(state, frozen, tokens):
        adapters, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(adapters, frozen, tokens)
        updates, opt = tx.update(grads, opt)
        return (optax.apply_updates(adapters, updates), opt), loss

    def frozen_array(*shape, sharding=split):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    frozen = Frozen(
        embed=frozen_array(VOCAB, DIM, sharding=rows),
        mix=frozen_array(LAYERS, DIM, DIM),
        up=frozen_array(LAYERS, DIM, FF),
        down=frozen_array(LAYERS, FF, DIM),
    )

    def adapter(fan_in, fan_out):
        return Adapter(jnp.zeros((LAYERS, fan_in, RANK)), jnp.zeros((LAYERS, RANK, fan_out)))

    def init():
        adapters = Adapters(adapter(DIM, FF), adapter(FF, DIM))
        return adapters, tx.init(adapters)

    state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), jax.eval_shape(init))
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=rows)
    return jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)), (state, frozen, tokens)
