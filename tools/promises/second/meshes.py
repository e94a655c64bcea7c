# mypy: ignore-errors
"""Steps over the four chips of a v5e slice."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGETS = ("tpu-v5e:2x2",)


class Layer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, _):
        h = nn.RMSNorm()(x)
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(self.heads, dtype=jnp.bfloat16)(h, h, mask=mask)
        h = nn.Dense(4 * x.shape[-1], dtype=jnp.bfloat16)(nn.RMSNorm()(x))
        return x + nn.Dense(x.shape[-1], dtype=jnp.bfloat16)(nn.gelu(h)), None


class Decoder(nn.Module):
    layers: int
    width: int
    vocab: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocab, self.width, dtype=jnp.bfloat16)(tokens)
        stack = nn.scan(
            Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers
        )
        x, _ = stack(8)(x, None)
        return nn.Dense(self.vocab, use_bias=False)(nn.RMSNorm()(x))


def make_fsdp(devices, batch=16, length=1024, layers=8, width=1024, vocab=16384):
    """A scanned decoder whose weights are spread over all chips."""
    mesh = Mesh(np.asarray(devices).reshape(-1), ("data",))
    model = Decoder(layers, width, vocab)
    optimizer = optax.adamw(3e-4)

    def spread(leaf):
        axis = int(np.argmax(leaf.shape)) if leaf.ndim else 0
        spec = P(*["data" if i == axis else None for i in range(leaf.ndim)])
        if not leaf.ndim or leaf.shape[axis] % mesh.size:
            spec = P()
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    rows = NamedSharding(mesh, P("data"))
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32, sharding=rows)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, length), jnp.int32))
    state = jax.eval_shape(optimizer.init, params)

    def train_step(params, state, tokens):
        def loss_fn(params):
            logits = model.apply(params, tokens)[:, :-1]
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return losses.mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    step = jax.jit(train_step, donate_argnums=(0, 1))
    return step, (jax.tree.map(spread, params), jax.tree.map(spread, state), tokens)


def make_tensor_parallel(devices, batch=16, length=512, width=1024, layers=6):
    """Unrolled layers in plain JAX on a mesh of data by model."""
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("data", "model"))

    def array(spec, *shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    def layer(w, x):
        b, n, d = x.shape
        q, k, v = (jnp.einsum("bnd,dhk->bnhk", x, w[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhk,bnhk->bhqn", q, k) * 64**-0.5)
        x = x + jnp.einsum("bhqn,bnhk,hkd->bqd", weights, v, w["o"])
        return x + jax.nn.relu(x @ w["up"]) @ w["down"]

    @jax.jit
    def train_step(params, x, y):
        def loss_fn(params):
            h = x
            for w in params:
                h = layer(w, h)
                h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("data")))
            return jnp.mean((h - y).astype(jnp.float32) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

    one = {name: array(P(None, "model"), width, width // 64, 64) for name in "qkv"}
    one["o"] = array(P("model"), width // 64, 64, width)
    one["up"] = array(P(None, "model"), width, 4 * width)
    one["down"] = array(P("model"), 4 * width, width)
    x = array(P("data"), batch, length, width)
    return train_step, ([one] * layers, x, x)
