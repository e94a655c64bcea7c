# mypy: ignore-errors
"""Clean. The vocabulary is padded to 50304 tokens, so that the tied embedding divides by four.

Small GPT-2 pretraining with equinox, fully sharded over four chips (weights stored split, layers stacked
and scanned with remat).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB = 50_304
WIDTH, HEADS, DEPTH, CONTEXT, BATCH = 768, 12, 6, 256, 8


class Layer(eqx.Module):
    qkv: jax.Array
    proj: jax.Array
    up: jax.Array
    down: jax.Array
    scale: jax.Array

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.qkv = 0.02 * jax.random.normal(k[0], (WIDTH, 3 * WIDTH))
        self.proj = 0.02 * jax.random.normal(k[1], (WIDTH, WIDTH))
        self.up = 0.02 * jax.random.normal(k[2], (WIDTH, 4 * WIDTH))
        self.down = 0.02 * jax.random.normal(k[3], (4 * WIDTH, WIDTH))
        self.scale = jnp.ones((2, WIDTH))

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = jnp.split(norm(x, self.scale[0]) @ self.qkv.astype(x.dtype), 3, axis=-1)
        q, k, v = (y.reshape(b, t, HEADS, -1) for y in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, WIDTH)
        x = x + y @ self.proj.astype(x.dtype)
        y = jax.nn.gelu(norm(x, self.scale[1]) @ self.up.astype(x.dtype))
        return x + y @ self.down.astype(x.dtype)


class GPT2(eqx.Module):
    tokens: jax.Array
    positions: jax.Array
    layers: Layer

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.tokens = 0.02 * jax.random.normal(a, (VOCAB, WIDTH))
        self.positions = 0.01 * jax.random.normal(b, (CONTEXT, WIDTH))
        self.layers = eqx.filter_vmap(Layer)(jax.random.split(c, DEPTH))


def norm(x, scale):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def wanted_spec(path):
    name = jax.tree_util.keystr(path)
    if name.endswith(".tokens"):
        return P("fsdp", None)
    if name.endswith(".positions") or name.endswith(".scale"):
        return P()
    if ".layers" in name:
        return P(None, "fsdp", None)
    return P()


def fitting_spec(spec, shape, mesh):
    """The wanted spec, less the axes over which the dimension cannot be split."""
    return P(*(axis if axis and n % mesh.shape[axis] == 0 else None for axis, n in zip(spec, shape)))


def place(tree, mesh):
    def one(path, x):
        spec = fitting_spec(wanted_spec(path), x.shape, mesh)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(one, tree)


def loss_fn(model, batch, pin):
    inputs, labels = batch[:, :-1], batch[:, 1:]
    x = pin((model.tokens.astype(jnp.bfloat16)[inputs] + model.positions.astype(jnp.bfloat16)))

    @jax.checkpoint
    def body(x, layer):
        return pin(layer(x)), None

    x, _ = jax.lax.scan(body, x, model.layers)
    logits = pin((x @ model.tokens.astype(x.dtype).T).astype(jnp.float32))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp"))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(6e-4, b2=0.95))
    model = eqx.filter_eval_shape(GPT2, jax.random.key(0))
    opt_state = place(jax.eval_shape(tx.init, model), mesh)
    model = place(model, mesh)
    out = jax.tree.map(lambda x: x.sharding, (model, opt_state))

    def pin(x):
        return jax.lax.with_sharding_constraint(x, rows)

    def step(model, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(model, batch, pin)
        grads = jax.lax.with_sharding_constraint(grads, out[0])
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, loss

    batch = jax.ShapeDtypeStruct((BATCH, CONTEXT + 1), jnp.int32, sharding=rows)
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, NamedSharding(mesh, P())))
    return jitted, (model, opt_state, batch)
