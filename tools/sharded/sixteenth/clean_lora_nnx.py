# mypy: ignore-errors
"""Clean. Fine-tuning with LoRA: the frozen base is split over both axes of the mesh, the adapters
and their moments are whole on every chip, being a few megabytes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, WIDTH, FFN, HEADS, LAYERS, RANK = 16384, 2048, 5632, 16, 2, 8
BATCH, LENGTH, ALPHA = 8, 512, 16.0

COLUMN, ROW = P("fsdp", "tensor"), P("tensor", "fsdp")


class Frozen(nnx.Variable):
    pass


class Adapter(nnx.Param):
    pass


def frozen(inner, outer, spec, rngs):
    init = nnx.initializers.lecun_normal()
    return Frozen(init(rngs.params(), (inner, outer), jnp.bfloat16), spec=spec)


class AdaptedLinear(nnx.Module):
    """A frozen matrix in bfloat16 and a trained correction of low rank."""

    def __init__(self, inner, outer, spec, *, rngs):
        init = nnx.initializers.lecun_normal()
        self.kernel = frozen(inner, outer, spec, rngs)
        self.a = Adapter(init(rngs.params(), (inner, RANK)))
        self.b = Adapter(jnp.zeros((RANK, outer)))

    def __call__(self, x, lay):
        low = lay(x @ self.a[...].astype(x.dtype), "fsdp", None, None)
        return x @ self.kernel[...] + (ALPHA / RANK) * (low @ self.b[...].astype(x.dtype))


class Layer(nnx.Module):
    def __init__(self, *, rngs):
        self.q = AdaptedLinear(WIDTH, WIDTH, COLUMN, rngs=rngs)
        self.k = AdaptedLinear(WIDTH, WIDTH, COLUMN, rngs=rngs)
        self.v = AdaptedLinear(WIDTH, WIDTH, COLUMN, rngs=rngs)
        self.o = AdaptedLinear(WIDTH, WIDTH, ROW, rngs=rngs)
        self.gate = frozen(WIDTH, FFN, COLUMN, rngs)
        self.up = frozen(WIDTH, FFN, COLUMN, rngs)
        self.down = frozen(FFN, WIDTH, ROW, rngs)

    def __call__(self, x, lay):
        split = (*x.shape[:2], HEADS, WIDTH // HEADS)
        h = lay(norm(x), "fsdp", None, None)
        q, k, v = (f(h, lay).reshape(split) for f in (self.q, self.k, self.v))
        q, k, v = (lay(part, "fsdp", None, "tensor", None) for part in (q, k, v))
        y = lay(jax.nn.dot_product_attention(q, k, v, is_causal=True), "fsdp", None, "tensor", None)
        x += lay(self.o(y.reshape(x.shape), lay), "fsdp", "tensor", None)
        h = lay(norm(x), "fsdp", None, None)
        gate, up = (lay(h @ w[...], "fsdp", None, "tensor") for w in (self.gate, self.up))
        return x + lay((jax.nn.silu(gate) * up) @ self.down[...], "fsdp", "tensor", None)


def rematerialised(layer, x, lay):
    graph, state = nnx.split(layer)
    return jax.checkpoint(lambda state, x: nnx.merge(graph, state)(x, lay))(state, x)


class Decoder(nnx.Module):
    def __init__(self, *, rngs):
        init = nnx.initializers.normal(0.02)
        table = init(rngs.params(), (VOCAB, WIDTH), jnp.bfloat16)
        self.embed = Frozen(table, spec=P("tensor", "fsdp"))
        self.layers = nnx.List([Layer(rngs=rngs) for _ in range(LAYERS)])

    def __call__(self, tokens, lay):
        table = self.embed[...]
        x = lay(table[tokens], "fsdp", "tensor", None)
        for layer in self.layers:
            x = rematerialised(layer, x, lay)
        h = lay(norm(x), "fsdp", None, None)
        return lay(h @ table.T, "fsdp", None, "tensor").astype(jnp.float32)


def norm(x):
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + 1e-6)
    return (x32 * scale).astype(x.dtype)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("fsdp", "tensor"))
    tx = optax.adamw(1e-4)

    def lay(x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    def struct(leaf, spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    model = nnx.eval_shape(lambda: Decoder(rngs=nnx.Rngs(0)))
    graph, adapters, base = nnx.split(model, Adapter, Frozen)
    is_var = lambda v: isinstance(v, nnx.Variable)  # noqa: E731
    base = jax.tree.map(lambda v: v.replace(struct(v.get_value(), v.spec)), base, is_leaf=is_var)
    adapters = jax.tree.map(lambda leaf: struct(leaf, P()), adapters)
    opt_state = jax.tree.map(lambda leaf: struct(leaf, P()), jax.eval_shape(tx.init, adapters))

    def step(adapters, opt_state, base, tokens):
        def loss_fn(adapters):
            logits = nnx.merge(graph, adapters, base)(tokens[:, :-1], lay)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return jnp.mean(losses)

        loss, grads = jax.value_and_grad(loss_fn)(adapters)
        updates, opt_state = tx.update(grads, opt_state, adapters)
        return optax.apply_updates(adapters, updates), opt_state, loss

    tokens = struct(jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32), P("fsdp"))
    whole = NamedSharding(mesh, P())
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=whole)
    return jitted, (adapters, opt_state, base, tokens)
