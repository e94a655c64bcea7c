# mypy: ignore-errors
"""Clean. Tensor parallel layers whose weights are split over both axes, with Adam's state."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"


def make_clean(devices, width=512, layers=6, batch=2048):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    def train_step(params, opt_state, x):
        def loss(params):
            def block(h, w):
                inner = jax.nn.gelu(h @ w["up"])
                inner = jax.lax.with_sharding_constraint(inner, spec("data", "model"))
                return h + inner @ w["down"], None

            return (jax.lax.scan(jax.checkpoint(block), x, params)[0] ** 2).mean()

        grads = jax.grad(loss)(params)
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state["mu"], grads)
        nu = jax.tree.map(lambda v, g: 0.9 * v + g * g, opt_state["nu"], grads)
        params = jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
        return params, {"mu": mu, "nu": nu}

    def weights():
        return {
            "up": S((layers, width, 4 * width), "float32", sharding=spec(None, "data", "model")),
            "down": S((layers, 4 * width, width), "float32", sharding=spec(None, "model", "data")),
            "scale": S((layers, width), "float32", sharding=spec()),
        }

    x = S((batch, width), "float32", sharding=spec("data"))
    state = {"mu": weights(), "nu": weights()}
    return jax.jit(train_step, donate_argnums=(0, 1)), (weights(), state, x)
