# mypy: ignore-errors
"""Clean. A parameter's type says whether it is divided over all chips, the optimizer takes its layout from
the parameters. The last layer (to 83 characters and the blank) is small and stays whole, as the norms do.

Recogniser for lines of handwriting (Flax NNX): strips of the line are tokens, a transformer reads them, CTC
aligns them with the text. The layers' parameters are gathered when used and gathered again going backward.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

ALPHABET, HEIGHT, STRIP, STRIPS = 84, 64, 8, 192
LINES, TEXT, WIDTH, HEADS, LAYERS = 64, 48, 768, 12, 10


class Weight(nnx.Param):
    """A parameter that is divided by its first axis."""


def rows(*shape, rngs):
    return Weight(jax.random.normal(rngs.params(), shape) * shape[0] ** -0.5)


class Layer(nnx.Module):
    def __init__(self, *, rngs):
        d = WIDTH
        self.qkv = rows(d, 3 * d, rngs=rngs)
        self.mix = rows(d, d, rngs=rngs)
        self.up = rows(d, 4 * d, rngs=rngs)
        self.down = rows(4 * d, d, rngs=rngs)
        self.norms = nnx.Param(jnp.ones((2, d)))

    def __call__(self, x, valid, fetch):
        b, t, d = x.shape
        qkv = norm(x, self.norms[0]) @ fetch(self.qkv)
        q, k, v = (a.reshape(b, t, HEADS, -1) for a in jnp.split(qkv, 3, axis=-1))
        y = jax.nn.dot_product_attention(q, k, v, mask=valid[:, None, None, :])
        x = x + y.reshape(b, t, d) @ fetch(self.mix)
        return x + jax.nn.gelu(norm(x, self.norms[1]) @ fetch(self.up)) @ fetch(self.down)


def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


class Reader(nnx.Module):
    def __init__(self, *, rngs):
        self.enter = rows(HEIGHT * STRIP, WIDTH, rngs=rngs)
        self.place = nnx.Param(jnp.zeros((STRIPS, WIDTH)))
        self.layers = nnx.List([Layer(rngs=rngs) for _ in range(LAYERS)])
        self.scale = nnx.Param(jnp.ones((WIDTH,)))
        self.letters = nnx.Param(jnp.zeros((WIDTH, ALPHABET)))

    def __call__(self, lines, valid, fetch, pin):
        b = lines.shape[0]
        strips = lines.reshape(b, HEIGHT, STRIPS, STRIP).swapaxes(1, 2).reshape(b, STRIPS, -1)
        x = pin(strips.astype(jnp.bfloat16) / 255 @ fetch(self.enter) + self.place[...].astype(jnp.bfloat16))
        for layer in self.layers:
            graph, state = nnx.split(layer)

            @jax.checkpoint
            def run(x, state, graph=graph):
                return pin(nnx.merge(graph, state)(x, valid, fetch))

            x = run(x, state)
        return norm(x, self.scale[...]).astype(jnp.float32) @ self.letters[...]


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))

    def fetch(weight):
        return jax.lax.with_sharding_constraint(weight[...].astype(jnp.bfloat16), whole)

    def pin(x):
        return jax.lax.with_sharding_constraint(x, split)

    graph, abstract = nnx.split(nnx.eval_shape(lambda: Reader(rngs=nnx.Rngs(0))))
    shardings = jax.tree.map(
        lambda v: v.replace(split if isinstance(v, Weight) else whole),
        abstract,
        is_leaf=lambda v: isinstance(v, nnx.Variable),
    )
    tx = optax.adamw(3e-4, b2=0.98)
    state_shardings = optax.tree_map_params(
        tx,
        lambda _, s: s,
        jax.eval_shape(tx.init, abstract),
        shardings,
        transform_non_params=lambda _: whole,
    )

    def loss_fn(params, lines, widths, text, lengths):
        unread = jnp.arange(STRIPS)[None] * STRIP >= widths[:, None]
        logits = nnx.merge(graph, params)(lines, ~unread, fetch, pin)
        no_text = jnp.arange(TEXT)[None] >= lengths[:, None]
        losses = optax.ctc_loss(logits, unread.astype(jnp.float32), text, no_text.astype(jnp.float32))
        return jnp.mean(losses / jnp.maximum(lengths, 1))

    def step(params, opt_state, lines, widths, text, lengths):
        loss, grads = jax.value_and_grad(loss_fn)(params, lines, widths, text, lengths)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    batch = (
        jax.ShapeDtypeStruct((LINES, HEIGHT, STRIPS * STRIP), jnp.uint8),
        jax.ShapeDtypeStruct((LINES,), jnp.int32),
        jax.ShapeDtypeStruct((LINES, TEXT), jnp.int32),
        jax.ShapeDtypeStruct((LINES,), jnp.int32),
    )
    fn = jax.jit(
        step,
        in_shardings=(shardings, state_shardings, split, split, split, split),
        out_shardings=(shardings, state_shardings, whole),
        donate_argnums=(0, 1),
    )
    return fn, (abstract, jax.eval_shape(tx.init, abstract), *batch)
