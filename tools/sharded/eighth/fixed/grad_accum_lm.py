# mypy: ignore-errors
"""Fault: optimizer. The gradient accumulator of the microbatch loop is pinned to be whole on every chip, where the
parameters and their momentum are split over both mesh axes: a full copy of the model per chip."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, FF, LAYERS = 16_384, 1024, 4096, 6
MICRO, BATCH, SEQ = 4, 32, 256


def shapes():
    return {
        "embed": (VOCAB, DIM),
        "mix": (LAYERS, DIM, DIM),
        "decay": (LAYERS, DIM),
        "up": (LAYERS, DIM, FF),
        "down": (LAYERS, FF, DIM),
    }


def specs():
    return {
        "embed": P("model", "data"),
        "mix": P(None, "data", "model"),
        "decay": P(),
        "up": P(None, "data", "model"),
        "down": P(None, "model", "data"),
    }


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def linear_recurrence(x, decay):
    a = jnp.broadcast_to(jax.nn.sigmoid(decay).astype(x.dtype), x.shape)
    return jax.lax.associative_scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, x), axis=1)[1]


def forward(params, tokens, pin):
    x = pin(params["embed"].astype(jnp.bfloat16)[tokens], "data", None, None)

    @jax.checkpoint
    def layer(x, w):
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        x = x + linear_recurrence(pin(norm(x) @ w["mix"], "data", None, "model"), w["decay"])
        h = pin(jax.nn.gelu(norm(x) @ w["up"]), "data", None, "model")
        return pin(x + h @ w["down"], "data", None, None), None

    x, _ = jax.lax.scan(layer, x, {k: params[k] for k in ("mix", "decay", "up", "down")})
    return pin(norm(x) @ params["embed"].T.astype(x.dtype), "data", None, "model")


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    shardings = {k: NamedSharding(mesh, s) for k, s in specs().items()}
    scalar = NamedSharding(mesh, P())

    def pin(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def loss_fn(params, tokens):
        logits = forward(params, tokens[:, :-1], pin).astype(jnp.float32)
        target = jax.nn.one_hot(tokens[:, 1:], VOCAB, dtype=jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * target, -1))

    def accumulate(params, batches):
        def body(carry, tokens):
            total, acc = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
            acc = jax.lax.with_sharding_constraint(jax.tree.map(jnp.add, acc, grads), shardings)
            return (total + loss, acc), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        (total, acc), _ = jax.lax.scan(body, (jnp.float32(0), zeros), batches)
        return total / MICRO, jax.tree.map(lambda a: a / MICRO, acc)

    def step(params, momentum, batches):
        loss, grads = accumulate(params, batches)
        momentum = jax.tree.map(lambda m, g: 0.95 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.02 * m, params, momentum)
        return params, momentum, loss

    params = {k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=shardings[k]) for k, s in shapes().items()}
    batches = jax.ShapeDtypeStruct(
        (MICRO, BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P(None, "data", None)))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, shardings, scalar))
    return fn, (params, params, batches)
