# mypy: ignore-errors
"""Fault: padding. A deep ensemble of nine members splits its activations by member over eight devices, so each device has room for two."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
MEMBERS, BATCH, FEATURES, HIDDEN, LAYERS = 9, 16384, 64, 256, 3


def init(key):
    sizes = [FEATURES] + [HIDDEN] * LAYERS + [2]
    keys = jax.random.split(key, len(sizes))
    return [{"w": jax.random.normal(k, (m, n)) / m**0.5, "b": jnp.zeros(n)} for k, m, n in zip(keys, sizes, sizes[1:])]


def ensemble_forward(params, x, place):
    h = place(jnp.broadcast_to(x, (MEMBERS, *x.shape)))  # FAULT
    for p in params[:-1]:
        h = jnp.einsum("mbi,mij->mbj", h, p["w"]) + p["b"][:, None]
        h = place(jnp.tanh(h))  # FAULT
    return jnp.einsum("mbi,mij->mbj", h, params[-1]["w"]) + params[-1]["b"][:, None]


def nll(params, x, y, place):
    mean, log_var = jnp.split(ensemble_forward(params, x, place), 2, -1)
    return jnp.mean(0.5 * log_var + 0.5 * (y - mean) ** 2 * jnp.exp(-log_var))


def program(devices, *spec):
    mesh = Mesh(np.array(devices), ("d",))
    place = lambda h: jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P(*spec)))  # FAULT
    tx = optax.adam(1e-3)

    def update(params, opt, x, y):
        value, grads = jax.value_and_grad(nll)(params, x, y, place)
        updates, opt = tx.update(grads, opt)
        return optax.apply_updates(params, updates), opt, value

    rep = lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, P()))
    shapes = jax.eval_shape(jax.vmap(init), jax.random.split(jax.random.key(0), MEMBERS))
    params, opt = jax.tree.map(rep, (shapes, jax.eval_shape(tx.init, shapes)))
    data = lambda n: jax.ShapeDtypeStruct((BATCH, n), jnp.float32, sharding=NamedSharding(mesh, P("d")))
    return jax.jit(update, donate_argnums=(0, 1)), (params, opt, data(FEATURES), data(1))


def make_faulty(devices):
    return program(devices, "d")  # FAULT


def make_fixed(devices):
    return program(devices, None, "d")
