# mypy: ignore-errors
"""Clean. The remat policy saves nothing but the named attention outputs; weights are gathered again.

Fully sharded fine-tuning of a small Llama with flax nnx; each layer gathers its weights when it runs.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

WIDTH, HIDDEN, HEADS, LAYERS = 1024, 4096, 16, 6
VOCAB, SEQ, BATCH = 8192, 256, 4
LR, BETA = 2e-5, 0.9

policies = jax.checkpoint_policies
REMAT = policies.save_only_these_names("attn_out")


def weight(rngs, *shape):
    return nnx.Param(jax.random.normal(rngs.params(), shape) * shape[0] ** -0.5)


class Gather:
    """Brings a stored (fsdp-split) weight to compute precision and layout."""

    def __init__(self, mesh):
        self.replicated = NamedSharding(mesh, P())
        self.rows = NamedSharding(mesh, P("fsdp"))

    def __call__(self, w):
        return jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), self.replicated)

    def batch(self, x):
        return jax.lax.with_sharding_constraint(x, self.rows)


class RMSNorm(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.ones((WIDTH,)))

    def __call__(self, x):
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
        return (y * self.scale[...]).astype(x.dtype)


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.wqkv = weight(rngs, WIDTH, 3 * WIDTH)
        self.wo = weight(rngs, WIDTH, WIDTH)

    def __call__(self, x, gather):
        b, t, d = x.shape
        qkv = (x @ gather(self.wqkv[...])).reshape(b, t, 3, HEADS, d // HEADS)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        y = checkpoint_name(y.reshape(b, t, d), "attn_out")
        return y @ gather(self.wo[...])


class SwiGLU(nnx.Module):
    def __init__(self, rngs):
        self.gate = weight(rngs, WIDTH, HIDDEN)
        self.up = weight(rngs, WIDTH, HIDDEN)
        self.down = weight(rngs, HIDDEN, WIDTH)

    def __call__(self, x, gather):
        hidden = jax.nn.silu(x @ gather(self.gate[...])) * (x @ gather(self.up[...]))
        return checkpoint_name(hidden, "mlp_hidden") @ gather(self.down[...])


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.attn, self.mlp = Attention(rngs), SwiGLU(rngs)

    def __call__(self, x, gather):
        x = x + self.attn(self.norm1(x), gather)
        x = x + self.mlp(self.norm2(x), gather)
        return gather.batch(x)


class Llama(nnx.Module):
    def __init__(self, rngs):
        self.embed = weight(rngs, VOCAB, WIDTH)
        self.layers = nnx.vmap(Layer, in_axes=0)(rngs.fork(split=LAYERS))  # stacked
        self.norm = RMSNorm()
        self.head = weight(rngs, WIDTH, VOCAB)


def forward(model, tokens, gather):
    x = gather.batch(gather(model.embed[...])[tokens])
    graph, stacked = nnx.split(model.layers)

    @functools.partial(jax.checkpoint, policy=REMAT)
    def run(x, state):
        return nnx.merge(graph, state)(x, gather), None

    x, _ = jax.lax.scan(run, x, stacked)
    return gather.batch(model.norm(x) @ gather(model.head[...]))


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    gather = Gather(mesh)
    graph, params = nnx.split(nnx.eval_shape(lambda: Llama(nnx.Rngs(0))))

    def place(x):
        spec = P(*(None,) * (x.ndim - 2), "fsdp") if x.size > WIDTH * LAYERS else P()
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(place, params)
    where = jax.tree.map(lambda x: x.sharding, params)

    def loss_fn(params, tokens):
        logits = forward(nnx.merge(graph, params), tokens[:, :-1], gather).astype(jnp.float32)
        gold = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - gold)

    def lion_step(params, momentum, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        sign = jax.tree.map(lambda m, g: jnp.sign(BETA * m + (1 - BETA) * g), momentum, grads)
        params = jax.tree.map(lambda p, s: p - LR * s, params, sign)
        momentum = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, momentum, grads)
        return params, momentum, loss

    step = jax.jit(
        lion_step, donate_argnums=(0, 1), out_shardings=(where, where, NamedSharding(mesh, P()))
    )
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=gather.rows)
    return step, (params, params, tokens)
