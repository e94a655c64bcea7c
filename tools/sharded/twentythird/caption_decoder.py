# mypy: ignore-errors
"""Fault: replicated. The weights and the cache of what was said are split, but the cache of the projected image
patches is handed over with P(), whole on every chip.

One decoding step of an image captioner (flax nnx): self-attention over the tokens so far and cross-attention over the
patches, whose keys and values were projected when the images came in.
"""
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, VOCABULARY = 8, 1024, 16, 32768
BATCH, LENGTH, PATCHES = 32, 128, 576
DTYPE = jnp.bfloat16


def shardings(mesh):
    return {
        "tokens": NamedSharding(mesh, P("batch")),
        "said": NamedSharding(mesh, P(None, "batch", None, "head", None)),
        "seen": NamedSharding(mesh, P()),  # FAULT
        "logits": NamedSharding(mesh, P("batch", "head")),
    }


def linear(inputs, outputs, spec, rngs):
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
    return nnx.Linear(inputs, outputs, use_bias=False, kernel_init=init, param_dtype=DTYPE, dtype=DTYPE, rngs=rngs)


def attend(query, keys, values, mask=None):
    scores = jnp.einsum("bhd,bthd->bht", query, keys) / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(values.dtype)
    return jnp.einsum("bht,bthd->bhd", weights, values)


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second, self.third = (nnx.RMSNorm(DIM, param_dtype=DTYPE, rngs=rngs) for _ in range(3))
        self.said = linear(DIM, 3 * DIM, (None, "head"), rngs)
        self.said_out = linear(DIM, DIM, ("head", None), rngs)
        self.look = linear(DIM, DIM, (None, "head"), rngs)
        self.look_out = linear(DIM, DIM, ("head", None), rngs)
        self.up = linear(DIM, 4 * DIM, (None, "head"), rngs)
        self.down = linear(4 * DIM, DIM, ("head", None), rngs)

    def __call__(self, x, said, seen, position):
        split = (x.shape[0], HEADS, DIM // HEADS)
        query, key, value = (y.reshape(split) for y in jnp.split(self.said(self.first(x)), 3, axis=-1))
        keys = jax.lax.dynamic_update_index_in_dim(said[0], key, position, 1)
        values = jax.lax.dynamic_update_index_in_dim(said[1], value, position, 1)
        past = jnp.arange(keys.shape[1]) <= position
        x = x + self.said_out(attend(query, keys, values, past).reshape(x.shape))
        query = self.look(self.second(x)).reshape(split)
        x = x + self.look_out(attend(query, seen[0], seen[1]).reshape(x.shape))
        x = x + self.down(jax.nn.gelu(self.up(self.third(x))))
        return x, (keys, values)


class Captioner(nnx.Module):
    def __init__(self, rngs):
        table = nnx.with_partitioning(nnx.initializers.normal(0.02), ("head", None))
        self.embed = nnx.Embed(VOCABULARY, DIM, embedding_init=table, param_dtype=DTYPE, dtype=DTYPE, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])

    def __call__(self, tokens, said, seen, position):
        x = self.embed(tokens)
        keys, values = [], []
        for i, layer in enumerate(self.layers):
            x, (key, value) = layer(x, (said[0][i], said[1][i]), (seen[0][i], seen[1][i]), position)
            keys.append(key)
            values.append(value)
        return self.embed.attend(x), (jnp.stack(keys), jnp.stack(values))


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("batch", "head"))
    where = shardings(mesh)
    with jax.set_mesh(mesh):
        graph, state = nnx.split(nnx.eval_shape(lambda: Captioner(nnx.Rngs(0))))
    layout = nnx.get_named_sharding(state, mesh)
    weights = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, layout)

    def decode(weights, tokens, said, seen, position):
        logits, said = nnx.merge(graph, weights)(tokens, said, seen, position)
        return jnp.argmax(logits, axis=-1), said

    head = (HEADS, DIM // HEADS)
    said = jax.ShapeDtypeStruct((LAYERS, BATCH, LENGTH, *head), DTYPE, sharding=where["said"])
    seen = jax.ShapeDtypeStruct((LAYERS, BATCH, PATCHES, *head), DTYPE, sharding=where["seen"])  # FAULT
    tokens = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=where["tokens"])
    position = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    jitted = jax.jit(decode, out_shardings=(where["tokens"], (where["said"],) * 2), donate_argnums=2)
    return jitted, (weights, tokens, (said, said), (seen, seen), position)
