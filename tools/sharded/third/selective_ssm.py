# mypy: ignore-errors
"""Fault: stack. A selective state space layer scans over time; the states kept for its gradient follow the batch, while the channels could follow `model` as the projections do."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
B, T, D, INNER, STATE = 16, 768, 512, 1024, 16
WEIGHTS = {
    "in": ((D, INNER), P(None, "model")),
    "gate": ((D, INNER), P(None, "model")),
    "dt": ((D, INNER), P(None, "model")),
    "b": ((D, STATE), P()),
    "c": ((D, STATE), P()),
    "log_a": ((STATE, INNER), P()),
    "out": ((INNER, D), P("model", None)),
}


def selective_scan(u, dt, b, c, log_a, place):
    a = -jnp.exp(log_a)

    def step(h, inputs):
        u_t, dt_t, b_t, c_t = inputs
        decay = jnp.exp(dt_t[:, None, :] * a)
        h = place(decay * h + (dt_t * u_t)[:, None, :] * b_t[:, :, None])  # FAULT
        return h, jnp.einsum("bnd,bn->bd", jnp.tanh(h), c_t)

    h0 = place(jnp.zeros((u.shape[0], STATE, INNER), u.dtype))  # FAULT
    by_time = [jnp.swapaxes(v, 0, 1) for v in (u, dt, b, c)]
    _, y = jax.lax.scan(step, h0, tuple(by_time))  # FAULT
    return jnp.swapaxes(y, 0, 1)


def layer(w, x, place):
    u = place(jax.nn.silu(x @ w["in"]))  # FAULT
    dt = place(jax.nn.softplus(x @ w["dt"]))  # FAULT
    y = selective_scan(u, dt, x @ w["b"], x @ w["c"], w["log_a"], place)
    return x + (y * jax.nn.silu(x @ w["gate"])) @ w["out"]


def program(devices, scan_spec):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    sharded = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
    weights = {name: sharded(*rest) for name, rest in WEIGHTS.items()}
    place = lambda v: jax.lax.with_sharding_constraint(v, NamedSharding(mesh, scan_spec))  # FAULT

    def loss(weights, x, y):
        return jnp.mean((layer(weights, x, place) - y) ** 2)

    def update(weights, x, y):
        grads = jax.grad(loss)(weights, x, y)
        return {n: weights[n] - 1e-2 * grads[n] for n in weights}

    jitted = jax.jit(update, out_shardings={n: w.sharding for n, w in weights.items()}, donate_argnums=0)
    return jitted, (weights, sharded((B, T, D), P("data")), sharded((B, T, D), P("data")))


def make_faulty(devices):
    return program(devices, P("data"))  # FAULT


def make_fixed(devices):
    return program(devices, P("data", None, "model"))
