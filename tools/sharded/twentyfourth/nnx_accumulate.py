# mypy: ignore-errors
"""Clean. Pretraining step of a flax nnx language model with gradient accumulation: parameters, their momentum and the
accumulated gradients are all split over the chips.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

VOCAB, WIDTH, HEADS, DEPTH = 8192, 1024, 8, 4
MICRO_STEPS, MICRO_BATCH, LENGTH = 4, 16, 256


class Block(nnx.Module):
    def __init__(self, rngs):
        linear = lambda i, o: nnx.Linear(i, o, use_bias=False, rngs=rngs)
        self.norm1, self.norm2 = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.qkv, self.out = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(self.norm1(x)), 3, axis=-1)
        q, k, v = (t.reshape(*t.shape[:2], HEADS, -1) for t in (q, k, v))
        x = x + self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


@nnx.split_rngs(splits=DEPTH)
@nnx.vmap(in_axes=0, out_axes=0)
def stacked_blocks(rngs):
    return Block(rngs)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.blocks = stacked_blocks(rngs)
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

    def __call__(self, tokens, rows):
        x = jax.lax.with_sharding_constraint(self.embed(tokens), rows)
        graph, weights = nnx.split(self.blocks)

        @jax.checkpoint
        def layer(x, w):
            return jax.lax.with_sharding_constraint(nnx.merge(graph, w)(x), rows), None

        x, _ = jax.lax.scan(layer, x, weights)
        x = jax.lax.with_sharding_constraint(x, rows)
        return self.embed.attend(self.norm(x))


def spec_of(leaf):
    """Matrices, stacked or not, are split over both axes along their larger dimension; norm scales are left whole."""
    if leaf.size < 2**16:
        return P()
    stack = [None] * (leaf.ndim - 2)
    rows, columns = leaf.shape[-2:]
    return P(*stack, ("replica", "fsdp"), None) if rows >= columns else P(*stack, None, ("replica", "fsdp"))


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("replica", "fsdp"))
    rows = NamedSharding(mesh, P(("replica", "fsdp")))
    graph, shapes = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))
    optimizer = optax.lion(1e-4)

    def place(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec_of(x))), tree)

    def shardings(tree):
        return jax.tree.map(lambda x: x.sharding, tree)

    params = place(shapes)
    opt_state = place(jax.eval_shape(optimizer.init, shapes))

    def loss(params, tokens):
        logits = nnx.merge(graph, params)(tokens, rows)
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    def pin(tree):
        return jax.lax.with_sharding_constraint(tree, shardings(params))

    def step(params, opt_state, tokens):
        def micro(total, tokens):
            value, grads = jax.value_and_grad(loss)(params, tokens)
            return pin(jax.tree.map(jnp.add, total, grads)), value

        total, values = jax.lax.scan(micro, pin(jax.tree.map(jnp.zeros_like, params)), tokens)
        grads = jax.tree.map(lambda g: g / MICRO_STEPS, total)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, values.mean()

    tokens = jax.ShapeDtypeStruct(
        (MICRO_STEPS, MICRO_BATCH, LENGTH), jnp.int32, sharding=NamedSharding(mesh, P(None, ("replica", "fsdp"))))
    out = (shardings(params), shardings(opt_state), NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (params, opt_state, tokens)
