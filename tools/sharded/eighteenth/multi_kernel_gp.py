# mypy: ignore-errors
"""Fault: replicated. The Gram matrix of the seasonal kernel is split over "row" only and is whole
along "col", four times the share of the other base kernels, which are kept in 2-D blocks.

Multiple-kernel Gaussian process: the base Gram matrices are computed once by another job and mixed
with learnt positive weights; a step is a stochastic gradient of the marginal likelihood (batched
conjugate gradients, Hutchinson traces) followed by a mirror-descent update of the weights.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N_POINTS = 10240
N_PROBES = 31
CG_STEPS = 60
STEP_SIZE = 0.05

# base kernel -> where its (points, points) Gram matrix lives on the (row, col) process grid
GRAM_SPECS = {
    "space": P("row", "col"),
    "elevation": P("row", "col"),
    "season": P("row"),  # FAULT
    "trend": P("row", "col"),
}
TALL = P("row", None)


class Weights(NamedTuple):
    log_mix: dict
    log_noise: jax.Array


class CGState(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rr: jax.Array


def columnwise_dot(a, b):
    return jnp.sum(a * b, axis=0)


def conjugate_gradients(matvec, rhs, steps):
    """Solves for all the right-hand sides at once; a fixed number of steps."""

    def body(_, s):
        kp = matvec(s.p)
        alpha = s.rr / columnwise_dot(s.p, kp)
        r = s.r - alpha * kp
        rr = columnwise_dot(r, r)
        return CGState(s.x + alpha * s.p, r, r + (rr / s.rr) * s.p, rr)

    start = CGState(jnp.zeros_like(rhs), rhs, rhs, columnwise_dot(rhs, rhs))
    return lax.fori_loop(0, steps, body, start).x


class MixedKernel:
    """Matrix-free sum of weighted base kernels; never forms the mixture."""

    def __init__(self, grams, tall):
        self.grams = grams
        self.tall = tall

    def parts(self, v):
        return {name: self.tall(gram @ v) for name, gram in self.grams.items()}

    def matvec(self, weights, v):
        mix = jax.tree.map(jnp.exp, weights.log_mix)
        out = jnp.exp(weights.log_noise) * v
        for name, part in self.parts(v).items():
            out = out + mix[name] * part
        return self.tall(out)


def mll_gradient(kernel, weights, targets, probes):
    rhs = kernel.tall(jnp.concatenate([targets[:, None], probes], axis=1))
    solved = conjugate_gradients(lambda v: kernel.matvec(weights, v), rhs, CG_STEPS)
    alpha, white = solved[:, :1], solved[:, 1:]
    block = jnp.concatenate([alpha, probes], axis=1)

    def from_action(scale, acted):
        fit = jnp.sum(alpha * acted[:, :1])
        trace = jnp.mean(columnwise_dot(white, acted[:, 1:]))
        return 0.5 * scale * (fit - trace)

    acted = kernel.parts(block)
    grad_mix = {name: from_action(jnp.exp(weights.log_mix[name]), acted[name]) for name in acted}
    grad_noise = from_action(jnp.exp(weights.log_noise), block)
    return Weights(grad_mix, grad_noise), alpha[:, 0]


def make_step(mesh):
    tall_sharding = NamedSharding(mesh, TALL)

    def tall(x):
        return lax.with_sharding_constraint(x, tall_sharding)

    def step(weights, grams, targets, key_data):
        key = jax.random.wrap_key_data(key_data)
        probes = tall(jax.random.rademacher(key, (N_POINTS, N_PROBES), jnp.float32))
        kernel = MixedKernel(grams, tall)
        grad, alpha = mll_gradient(kernel, weights, targets, probes)
        new = jax.tree.map(lambda w, g: w + STEP_SIZE * jnp.clip(g, -1.0, 1.0), weights, grad)
        return new, alpha

    return step


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("row", "col"))
    whole = NamedSharding(mesh, P())

    def scalar():
        return jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)

    weights = Weights(log_mix={name: scalar() for name in GRAM_SPECS}, log_noise=scalar())
    grams = {
        name: jax.ShapeDtypeStruct((N_POINTS, N_POINTS), jnp.float32, sharding=NamedSharding(mesh, spec))
        for name, spec in GRAM_SPECS.items()
    }
    targets = jax.ShapeDtypeStruct((N_POINTS,), jnp.float32, sharding=NamedSharding(mesh, P("row")))
    key_data = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=whole)
    fn = jax.jit(make_step(mesh), donate_argnums=0, out_shardings=(whole, NamedSharding(mesh, P("row"))))
    return fn, (weights, grams, targets, key_data)
