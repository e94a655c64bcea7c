# mypy: ignore-errors
"""Clean. A physics-informed network for Burgers' equation: a small replicated network, collocation points
split over all devices."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Problem:
    viscosity: float = 0.01 / np.pi
    interior: int = 65536
    boundary: int = 8192
    initial: int = 8192


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Points:
    interior: jax.Array  # (n, 2): t, x
    boundary: jax.Array
    initial: jax.Array
    weight: jax.Array  # (n,) of the interior points


class Net:
    widths = (2, 256, 256, 256, 1)

    @classmethod
    def init(cls, key):
        layers = []
        for k, i, o in zip(jax.random.split(key, len(cls.widths)), cls.widths[:-1], cls.widths[1:]):
            layers.append({"w": jax.random.normal(k, (i, o)) * np.sqrt(2 / (i + o)), "b": jnp.zeros(o)})
        return layers

    @staticmethod
    def apply(params, tx):
        h = tx
        for layer in params[:-1]:
            h = jnp.tanh(h @ layer["w"] + layer["b"])
        return (h @ params[-1]["w"] + params[-1]["b"])[..., 0]


def derivatives(params, tx):
    """u, u_t, u_x and u_xx in forward mode, for all points at once."""
    def u(z):
        return Net.apply(params, z)

    along_t = jnp.broadcast_to(jnp.array([1.0, 0.0]), tx.shape)
    along_x = jnp.broadcast_to(jnp.array([0.0, 1.0]), tx.shape)
    value, u_t = jax.jvp(u, (tx,), (along_t,))
    u_x, u_xx = jax.jvp(lambda z: jax.jvp(u, (z,), (along_x,))[1], (tx,), (along_x,))
    return value, u_t, u_x, u_xx


def residual(params, tx, nu):
    u, u_t, u_x, u_xx = derivatives(params, tx)
    return u_t + u * u_x - nu * u_xx


def loss_fn(params, points, nu):
    r = residual(params, points.interior, nu)
    wall = Net.apply(params, points.boundary)
    start = Net.apply(params, points.initial) + jnp.sin(jnp.pi * points.initial[:, 1])
    terms = {
        "pde": jnp.mean(points.weight * r**2),
        "boundary": jnp.mean(wall**2),
        "initial": jnp.mean(start**2),
    }
    return sum(terms.values()), (terms, r)


def make_clean(devices):
    problem = Problem()
    mesh = Mesh(np.array(devices), ("points",))
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("points"))
    opt = optax.adam(optax.exponential_decay(1e-3, 2000, 0.9))

    def update(params, opt_state, points):
        grads, (terms, r) = jax.grad(loss_fn, has_aux=True)(params, points, problem.viscosity)
        updates, opt_state = opt.update(grads, opt_state)
        # residual-based attention: points with a large residual weigh more in later steps
        weight = 0.99 * points.weight + 0.01 * jnp.abs(r) / jnp.max(jnp.abs(r))
        points = dataclasses.replace(points, weight=weight)
        return optax.apply_updates(params, updates), opt_state, points, terms

    params = jax.eval_shape(Net.init, jax.random.key(0))
    opt_state = jax.eval_shape(opt.init, params)
    points = Points(
        interior=jax.ShapeDtypeStruct((problem.interior, 2), jnp.float32),
        boundary=jax.ShapeDtypeStruct((problem.boundary, 2), jnp.float32),
        initial=jax.ShapeDtypeStruct((problem.initial, 2), jnp.float32),
        weight=jax.ShapeDtypeStruct((problem.interior,), jnp.float32),
    )
    fn = jax.jit(
        update,
        in_shardings=(everywhere, everywhere, split),
        out_shardings=(everywhere, everywhere, split, everywhere),
        donate_argnums=(0, 1, 2),
    )
    return fn, (params, opt_state, points)
