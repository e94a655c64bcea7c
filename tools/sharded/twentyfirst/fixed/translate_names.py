# mypy: ignore-errors
"""Clean. The logits are split by `tp` along the vocabulary, as the table is.

Sentence translation, encoder and decoder with tensor parallelism, label smoothing; the weights and
activations are annotated by hand with the short axis names of the mesh.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, DIM, HIDDEN, HEADS, DEPTH = 32_768, 512, 2048, 8, 3
BATCH, SOURCE, DESTINATION = 16, 128, 128
SMOOTHING = 0.1


class Annotator:
    """Sharding constraints that leave out the axes a mesh does not have."""

    def __init__(self, mesh):
        self.mesh = mesh

    def sharding(self, *axes):
        return NamedSharding(self.mesh, P(*(a if a in self.mesh.axis_names else None for a in axes)))

    def __call__(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, self.sharding(*axes))


def weight_table():
    """(shape, axes) of every weight; the layers are stacked."""
    square = {n: ((DEPTH, DIM, DIM), (None, None, "tp")) for n in ("q", "k", "v")}
    attention = {**square, "o": ((DEPTH, DIM, DIM), (None, "tp", None))}
    ffn = {"up": ((DEPTH, DIM, HIDDEN), (None, None, "tp")), "down": ((DEPTH, HIDDEN, DIM), (None, "tp", None))}
    return {
        "embed": ((VOCAB, DIM), ("tp", None)),
        "encoder": {"self": attention, "ffn": ffn},
        "decoder": {"self": attention, "cross": attention, "ffn": ffn},
    }


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def attend(w, x, memory, shard, causal=False):
    b, t, _ = x.shape
    q = shard((x @ w["q"]).reshape(b, t, HEADS, -1), "dp", None, "tp", None)
    k, v = ((memory @ w[n]).reshape(b, memory.shape[1], HEADS, -1) for n in ("k", "v"))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    return shard(y.reshape(b, t, -1) @ w["o"], "dp", None, None)


def feed_forward(w, x, shard):
    y = shard(jax.nn.relu(x @ w["up"]), "dp", None, "tp")
    return shard(y @ w["down"], "dp", None, None)


def loss_fn(params, source, destination, shard):
    @jax.checkpoint
    def encoder_layer(x, w):
        y = norm(x)
        x = x + attend(w["self"], y, y, shard)
        return x + feed_forward(w["ffn"], norm(x), shard), None

    @jax.checkpoint
    def decoder_layer(carry, w):
        x, memory = carry
        y = norm(x)
        x = x + attend(w["self"], y, y, shard, causal=True)
        x = x + attend(w["cross"], norm(x), memory, shard)
        return (x + feed_forward(w["ffn"], norm(x), shard), memory), None

    table = params["embed"]
    memory, _ = jax.lax.scan(encoder_layer, shard(table[source], "dp", None, None), params["encoder"])
    x = shard(table[destination[:, :-1]], "dp", None, None)
    (x, _), _ = jax.lax.scan(decoder_layer, (x, norm(memory)), params["decoder"])
    logits = shard(norm(x) @ table.T, "dp", None, "tp")
    wanted = destination[:, 1:]
    logz = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.sum(jnp.where(jnp.arange(VOCAB) == wanted[..., None], logits, 0.0), -1)
    nll = (1 - SMOOTHING) * (logz - picked) + SMOOTHING * (logz - logits.mean(-1))
    return jnp.sum(nll * (wanted > 0)) / jnp.maximum(jnp.sum(wanted > 0), 1)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))
    shard = Annotator(mesh)
    table = weight_table()
    is_entry = {"is_leaf": lambda x: isinstance(x, tuple)}
    places = jax.tree.map(lambda entry: shard.sharding(*entry[1]), table, **is_entry)

    def step(params, second, source, destination):
        loss, grads = jax.value_and_grad(loss_fn)(params, source, destination, shard)
        grads = jax.lax.with_sharding_constraint(grads, places)
        second = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, second, grads)
        params = jax.tree.map(lambda p, s, g: p - 1e-3 * g * jax.lax.rsqrt(s + 1e-10), params, second, grads)
        return params, second, loss

    params = jax.tree.map(
        lambda entry, place: jax.ShapeDtypeStruct(entry[0], jnp.float32, sharding=place), table, places, **is_entry
    )
    source = jax.ShapeDtypeStruct((BATCH, SOURCE), jnp.int32, sharding=shard.sharding("dp"))
    destination = jax.ShapeDtypeStruct((BATCH, DESTINATION + 1), jnp.int32, sharding=shard.sharding("dp"))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(places, places, shard.sharding()))
    return fn, (params, params, source, destination)
