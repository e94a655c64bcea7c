# mypy: ignore-errors
"""Clean. Every block of particles meets every other: the blocks travel once around the ring of devices, so that
neither the particles nor the kernel matrix is ever whole anywhere.

Stein variational gradient descent for Bayesian logistic regression with a horseshoe prior. The data set is
small and whole on every device by choice; the particles are what is big.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PARTICLES, FEATURES, ROWS = 8192, 4096, 256


def log_posterior(theta, x, y):
    """theta: the weights' logarithmic scales are tied, the last entry is the global one."""
    weights, scale = theta[:-1], jnp.exp(theta[-1])
    logits = x @ weights
    likelihood = -jnp.sum(jnp.logaddexp(0.0, -y * logits))
    prior = jnp.sum(jnp.log(jnp.log1p(2.0 * (scale / (weights + 1e-4)) ** 2))) - 0.5 * theta[-1] ** 2
    return likelihood + prior


def scores(theta, x, y, chunk=64):
    """Gradients of the log posterior, a few particles at a time."""
    pieces = theta.reshape(-1, chunk, theta.shape[-1])
    one = jax.vmap(jax.grad(log_posterior), in_axes=(0, None, None))
    return lax.map(lambda piece: one(piece, x, y), pieces).reshape(theta.shape)


def squared(theta):
    return jnp.sum(theta * theta, axis=-1)


def pair_force(mine, other, other_score, bandwidth):
    """What the particles of one block do to mine: attraction along their scores, repulsion from each other."""
    distance = squared(mine)[:, None] + squared(other)[None, :] - 2.0 * mine @ other.T
    kernel = jnp.exp(-jnp.maximum(distance, 0.0) / bandwidth)
    drive = kernel @ other_score
    repel = (2.0 / bandwidth) * (mine * kernel.sum(axis=1, keepdims=True) - kernel @ other)
    return drive + repel


def ring_step(mine, momentum, x, y, rate, bandwidth):
    count = lax.axis_size("ring")
    forward = [(i, (i + 1) % count) for i in range(count)]
    score = scores(mine, x, y)

    def visit(_, state):
        force, other, other_score = state
        force = force + pair_force(mine, other, other_score, bandwidth)
        other, other_score = lax.ppermute((other, other_score), "ring", forward)
        return force, other, other_score

    force, _, _ = lax.fori_loop(0, count, visit, (jnp.zeros_like(mine), mine, score))
    force = force / PARTICLES
    momentum = 0.9 * momentum + force
    mine = mine + rate * momentum
    spread = lax.pmean(jnp.var(mine, axis=0).mean(), "ring")
    centre = lax.pmean(mine.mean(axis=0), "ring")
    return mine, momentum, centre, spread


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("ring",))
    block, whole = P("ring"), P()
    step = functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(block, block, whole, whole, whole, whole),
        out_specs=(block, block, whole, whole),
        check_vma=False,
    )(ring_step)

    def arg(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    theta = arg((PARTICLES, FEATURES + 1), block)
    data = arg((ROWS, FEATURES), whole), arg((ROWS,), whole)
    return jax.jit(step, donate_argnums=(0, 1)), (theta, theta, *data, arg((), whole), arg((), whole))
