# mypy: ignore-errors
"""Clean. Fine-tuning the output head and final norm on frozen hidden states, the loss over a large vocabulary computed in
chunks of tokens; the vocabulary is split over all chips.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


class Sizes(NamedTuple):
    vocab: int = 65536
    width: int = 2048
    batch: int = 8
    length: int = 2048
    chunk: int = 256


class Head(NamedTuple):
    kernel: jax.Array
    scale: jax.Array


HEAD_SPECS = Head(kernel=P(None, ("dp", "tp")), scale=P())


def normalize(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def chunked_loss(head, hidden, targets, weights, *, sizes, mesh):
    """Scans over chunks of the sequence and recomputes each chunk's logits in the backward pass."""
    chunks = sizes.length // sizes.chunk
    by_chunk = lambda x: x.reshape(x.shape[0], chunks, sizes.chunk, *x.shape[2:]).swapaxes(0, 1)
    on_vocab = NamedSharding(mesh, P(None, None, ("dp", "tp")))
    kernel = head.kernel.astype(jnp.bfloat16)

    @jax.checkpoint
    def one(total, chunk):
        h, target, weight = chunk
        logits = jnp.einsum("bsd,dv->bsv", normalize(h, head.scale), kernel, preferred_element_type=jnp.float32)
        logits = jax.lax.with_sharding_constraint(logits, on_vocab)
        hit = jax.nn.one_hot(target, sizes.vocab, dtype=jnp.float32)
        losses = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(logits * hit, axis=-1)
        return total + jnp.sum(losses * weight), None

    total, _ = jax.lax.scan(one, jnp.float32(0), (by_chunk(hidden), by_chunk(targets), by_chunk(weights)))
    return total / jnp.maximum(weights.sum(), 1.0)


def make_clean(devices):
    sizes = Sizes()
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("dp", "tp"))
    optimizer = optax.adamw(optax.cosine_decay_schedule(1e-4, 1000))
    on = lambda spec: NamedSharding(mesh, spec)

    head_shardings = jax.tree.map(on, HEAD_SPECS, is_leaf=lambda s: isinstance(s, P))
    head = Head(
        kernel=jax.ShapeDtypeStruct((sizes.width, sizes.vocab), jnp.float32, sharding=head_shardings.kernel),
        scale=jax.ShapeDtypeStruct((sizes.width,), jnp.float32, sharding=head_shardings.scale),
    )
    moments = jax.eval_shape(optimizer.init, head)
    moment_shardings = optax.tree_utils.tree_map_params(
        optimizer, lambda _, s: s, moments, head_shardings, transform_non_params=lambda _: on(P()))
    moments = jax.tree.map(
        lambda m, s: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=s), moments, moment_shardings)

    rows = on(P(("dp", "tp")))
    hidden = jax.ShapeDtypeStruct((sizes.batch, sizes.length, sizes.width), jnp.bfloat16, sharding=rows)
    targets = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32, sharding=rows)
    weights = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.float32, sharding=rows)

    def step(head, moments, hidden, targets, weights):
        value, grads = jax.value_and_grad(chunked_loss)(head, hidden, targets, weights, sizes=sizes, mesh=mesh)
        grads = jax.lax.with_sharding_constraint(grads, head_shardings)
        updates, moments = optimizer.update(grads, moments, head)
        return optax.apply_updates(head, updates), moments, value

    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(head_shardings, moment_shardings, on(P())))
    return jitted, (head, moments, hidden, targets, weights)
