# mypy: ignore-errors
"""Clean. Eight devices, a deep residual MLP with weights, gradients and moments split, gathered layer by layer and dropped, batch split."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("all",))
    rows, stack = NamedSharding(mesh, P("all")), NamedSharding(mesh, P(None, "all"))

    @jax.checkpoint
    def layer(x, w):
        g, u, d = (jax.lax.with_sharding_constraint(a, NamedSharding(mesh, P())) for a in (w["g"], w["u"], w["d"]))
        return jax.lax.with_sharding_constraint(x + (jax.nn.silu(x @ g) * (x @ u)) @ d, rows), None

    def step(w, m, x, y):
        def loss(w):
            out, _ = jax.lax.scan(layer, x, w)
            return jnp.mean((out - y) ** 2)

        g = jax.grad(loss)(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda w, m: w - 0.1 * m, w, m), m

    s = lambda *shape: jax.ShapeDtypeStruct((8,) + shape, jnp.float32, sharding=stack)
    w = {"g": s(512, 1024), "u": s(512, 1024), "d": s(1024, 512)}
    x = jax.ShapeDtypeStruct((8192, 512), jnp.float32, sharding=rows)
    out = jax.tree.map(lambda a: stack, (w, w))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (w, w, x, x)
