# mypy: ignore-errors
"""Fault: gathered. The loss gathers the parameters of every SSM layer before the first layer runs, so the full weights (and
their unsharded gradients) live through forward and backward instead of one layer's at a time."""
from typing import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, INNER, STATE, LAYERS, VOCAB = 1024, 2048, 16, 12, 8192
BATCH, SEQ = 4, 512


class S6Layer(eqx.Module):
    in_proj: jax.Array
    x_proj: jax.Array
    dt_proj: jax.Array
    a_log: jax.Array
    skip: jax.Array
    out_proj: jax.Array
    scale: jax.Array

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.in_proj = jax.random.normal(k[0], (DIM, 2 * INNER)) * DIM**-0.5
        self.x_proj = jax.random.normal(k[1], (INNER, 64 + 2 * STATE)) * INNER**-0.5
        self.dt_proj = jax.random.normal(k[2], (64, INNER)) * 0.1
        self.a_log = jnp.log(jnp.tile(jnp.arange(1.0, STATE + 1), (INNER, 1)))
        self.skip = jnp.ones((INNER,))
        self.out_proj = jax.random.normal(k[3], (INNER, DIM)) * INNER**-0.5
        self.scale = jnp.ones((DIM,))

    def __call__(self, x):
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * self.scale
        u, z = jnp.split(h @ self.in_proj, 2, axis=-1)
        u = jax.nn.silu(u)
        dt, b, c = jnp.split(u @ self.x_proj, [64, 64 + STATE], axis=-1)
        dt = jax.nn.softplus(dt @ self.dt_proj)
        a = -jnp.exp(self.a_log)

        def tick(s, inp):
            u_t, dt_t, b_t, c_t = inp
            s = jnp.exp(dt_t[..., None] * a) * s + (dt_t * u_t)[..., None] * b_t[:, None, :]
            return s, jnp.einsum("bin,bn->bi", s, c_t)

        @jax.checkpoint
        def chunk(s, inp):
            return jax.lax.scan(tick, s, inp)

        def chunks(v):
            return jnp.swapaxes(v, 0, 1).reshape(SEQ // 32, 32, v.shape[0], v.shape[-1])

        s0 = jnp.zeros((x.shape[0], INNER, STATE), x.dtype)
        _, y = jax.lax.scan(chunk, s0, tuple(map(chunks, (u, dt, b, c))))
        y = jnp.swapaxes(y.reshape(SEQ, x.shape[0], INNER), 0, 1) + u * self.skip
        return x + (y * jax.nn.silu(z)) @ self.out_proj


class Model(eqx.Module):
    embed: jax.Array
    layers: S6Layer  # all leaves have a leading axis of layers

    def __init__(self, key):
        first, rest = jax.random.split(key)
        self.embed = jax.random.normal(first, (VOCAB, DIM)) * 0.02
        self.layers = eqx.filter_vmap(S6Layer)(jax.random.split(rest, LAYERS))


def fsdp_sharding(mesh, x):
    if x.ndim == 3:
        return NamedSharding(mesh, P(None, "fsdp"))
    return NamedSharding(mesh, P("fsdp") if x.shape == (VOCAB, DIM) else P())


def unshard(mesh, tree):
    return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P())), tree)


def forward_gather_first(mesh, model, x):
    layers = unshard(mesh, model.layers)  # FAULT
    body = jax.checkpoint(lambda y, layer: (layer(y), None))
    return jax.lax.scan(body, x, layers)[0]


def forward_gather_each(mesh, model, x):
    body = jax.checkpoint(lambda y, layer: (unshard(mesh, layer)(y), None))
    return jax.lax.scan(body, x, model.layers)[0]


def build(devices, forward: Callable):
    mesh = Mesh(np.array(devices), ("fsdp",))
    tx = optax.lion(1e-4)
    batch_sharding = NamedSharding(mesh, P("fsdp"))

    def init():
        model = Model(jax.random.key(0))
        return model, tx.init(model)

    state = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=fsdp_sharding(mesh, s)),
                         jax.eval_shape(init))
    state_sharding = jax.tree.map(lambda s: s.sharding, state)

    def loss_fn(model, tokens):
        x = model.embed[tokens[:, :-1]]
        x = jax.lax.with_sharding_constraint(x, batch_sharding)
        x = forward(mesh, model, x)
        logits = x @ model.embed.T
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(state, tokens):
        model, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(model, tokens)
        grads = jax.tree.map(lambda g: jax.lax.with_sharding_constraint(g, fsdp_sharding(mesh, g)), grads)
        updates, opt = tx.update(grads, opt, model)
        return (optax.apply_updates(model, updates), opt), loss

    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=batch_sharding)
    return jax.jit(step, donate_argnums=0, out_shardings=(state_sharding, None)), (state, tokens)


def make_faulty(devices):
    return build(devices, forward_gather_first)


def make_fixed(devices):
    return build(devices, forward_gather_each)
