# mypy: ignore-errors
"""Fixed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

N_TRAIN = 8192
N_TEST = 512
DIM = 12
MAX_ITERS = 50


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the arrays of the regression live; one mesh axis, over the training points."""

    mesh: Mesh
    inputs: P = P("points", None)
    targets: P = P("points")
    gram: P = P("points", None)
    cross: P = P("points", None)

    def sharding(self, name):
        return NamedSharding(self.mesh, getattr(self, name))

    def put(self, name, value):
        return jax.lax.with_sharding_constraint(value, self.sharding(name))


def matern52(xa, xb, log_scale, log_amp):
    a = xa * jnp.exp(-log_scale)
    b = xb * jnp.exp(-log_scale)
    sq = (a * a).sum(-1)[:, None] + (b * b).sum(-1)[None, :] - 2.0 * a @ b.T
    r = jnp.sqrt(5.0 * jnp.maximum(sq, 1e-10))
    return jnp.exp(2.0 * log_amp) * (1.0 + r + r * r / 3.0) * jnp.exp(-r)


def conjugate_gradients(matvec, rhs, tol):
    def unfinished(carry):
        _, r, _, it = carry
        return (jnp.vdot(r, r) > tol) & (it < MAX_ITERS)

    def improve(carry):
        x, r, p, it = carry
        kp = matvec(p)
        rr = jnp.vdot(r, r)
        alpha = rr / jnp.vdot(p, kp)
        x = x + alpha * p
        r_new = r - alpha * kp
        p = r_new + (jnp.vdot(r_new, r_new) / rr) * p
        return x, r_new, p, it + 1

    start = (jnp.zeros_like(rhs), rhs, rhs, jnp.int32(0))
    solution, _, _, iterations = jax.lax.while_loop(unfinished, improve, start)
    return solution, iterations


class Regression:
    def __init__(self, layout):
        self.layout = layout

    def gram(self, hyper, x):
        k = matern52(x, x, hyper["log_scale"], hyper["log_amp"])
        k = k + jnp.exp(hyper["log_noise"]) * jnp.eye(x.shape[0], dtype=x.dtype)
        return self.layout.put("gram", k)

    def predict(self, hyper, x, y, x_test):
        k = self.gram(hyper, x)
        weights, iterations = conjugate_gradients(lambda v: k @ v, y, 1e-4)
        cross = matern52(x, x_test, hyper["log_scale"], hyper["log_amp"])
        cross = self.layout.put("cross", cross)
        mean = cross.T @ weights
        fit = -0.5 * jnp.vdot(y, weights)
        return mean, fit, iterations


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("points",))
    layout = Layout(mesh)
    whole = NamedSharding(mesh, P())
    hyper = {
        "log_scale": jax.ShapeDtypeStruct((DIM,), jnp.float32),
        "log_amp": jax.ShapeDtypeStruct((), jnp.float32),
        "log_noise": jax.ShapeDtypeStruct((), jnp.float32),
    }
    x = jax.ShapeDtypeStruct((N_TRAIN, DIM), jnp.float32)
    y = jax.ShapeDtypeStruct((N_TRAIN,), jnp.float32)
    x_test = jax.ShapeDtypeStruct((N_TEST, DIM), jnp.float32)
    fn = jax.jit(
        Regression(layout).predict,
        in_shardings=(whole, layout.sharding("inputs"), layout.sharding("targets"), whole),
        out_shardings=(whole, whole, whole),
    )
    return fn, (hyper, x, y, x_test)
