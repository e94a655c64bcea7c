# mypy: ignore-errors
"""Fault: donated. A train step on four chips donates its weights and moments, which are split; the new weights leave with a constraint of one axis of the mesh only, so they are twice as large and nothing is reused for them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
SIZES = [1024, 4096, 4096, 4096, 1024]


def forward(params, x):
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ params[-1]


def setup(devices, kept):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
    both = NamedSharding(mesh, P("a", "b"))
    tx = optax.sgd(0.01, momentum=0.9)

    def step(params, trace, x, y):
        grads = jax.grad(lambda p: jnp.mean((forward(p, x) - y) ** 2))(params)
        updates, trace = tx.update(grads, trace)
        params = optax.apply_updates(params, updates)
        params = jax.lax.with_sharding_constraint(params, NamedSharding(mesh, kept))  # FAULT
        return params, trace

    params = [jax.ShapeDtypeStruct((i, o), jnp.float32, sharding=both) for i, o in zip(SIZES, SIZES[1:])]
    trace = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=both), jax.eval_shape(tx.init, params))
    batch = lambda n: jax.ShapeDtypeStruct((1024, n), jnp.float32, sharding=NamedSharding(mesh, P(("a", "b"))))
    return jax.jit(step, donate_argnums=(0, 1)), (params, trace, batch(SIZES[0]), batch(SIZES[-1]))


def make_faulty(devices):
    return setup(devices, P("a", None))  # FAULT


def make_fixed(devices):
    return setup(devices, P("a", "b"))
