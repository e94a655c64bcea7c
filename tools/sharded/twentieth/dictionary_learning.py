# mypy: ignore-errors
"""Fault: donated. The codes come in divided by samples and atoms and go out divided by samples only: the donated
buffer fits no result, so the old codes stay beside the new, larger ones.

Convolution-free dictionary learning for hyperspectral patches: a few proximal gradient steps (FISTA) on the
sparse codes, warm-started from the last sweep, then one block update of the dictionary.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

SAMPLES, FEATURES, ATOMS = 131_072, 512, 2048
INNER = 8


def shrink(x, threshold):
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def fista(codes, dictionary, signals, penalty, lipschitz, pin):
    """A few accelerated proximal steps."""

    def step(state, _):
        codes, ahead, t = state
        error = ahead @ dictionary - signals
        moved = pin(ahead - (error @ dictionary.T) / lipschitz)
        fresh = shrink(moved, penalty / lipschitz)
        t_next = (1.0 + jnp.sqrt(1.0 + 4.0 * t * t)) / 2.0
        ahead = fresh + ((t - 1.0) / t_next) * (fresh - codes)
        return (pin(fresh), pin(ahead), t_next), None

    (codes, _, _), _ = jax.lax.scan(step, (codes, codes, jnp.ones(())), length=INNER)
    return codes


def renew(dictionary, gram, cross):
    """Block coordinate descent over the atoms on the accumulated statistics, then unit norms."""

    def atom(dictionary, j):
        weight = jax.lax.dynamic_index_in_dim(gram, j, axis=1, keepdims=False)
        target = jax.lax.dynamic_index_in_dim(cross, j, axis=0, keepdims=False)
        old = jax.lax.dynamic_index_in_dim(dictionary, j, axis=0, keepdims=False)
        fresh = old + (target - weight @ dictionary) / jnp.maximum(weight[j], 1e-6)
        fresh = fresh / jnp.maximum(jnp.linalg.norm(fresh), 1.0)
        return jax.lax.dynamic_update_index_in_dim(dictionary, fresh, j, axis=0), None

    dictionary, _ = jax.lax.scan(atom, dictionary, jnp.arange(ATOMS))
    return dictionary


def build(mesh):
    grid = NamedSharding(mesh, P("sample", "atom"))

    def pin(codes):
        return jax.lax.with_sharding_constraint(codes, grid)

    def sweep(codes, dictionary, gram, cross, signals, penalty):
        lipschitz = jnp.max(jnp.abs(dictionary @ dictionary.T).sum(axis=1))
        codes = fista(pin(codes), dictionary, signals, penalty, lipschitz, pin)
        gram = 0.9 * gram + codes.T @ codes / SAMPLES
        cross = 0.9 * cross + codes.T @ signals / SAMPLES
        error = jnp.mean((codes @ dictionary - signals) ** 2)
        return codes, renew(dictionary, gram, cross), gram, cross, error

    return sweep


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(8, 2), ("sample", "atom"))

    def place(*axes):
        return NamedSharding(mesh, P(*axes))

    codes = jax.ShapeDtypeStruct((SAMPLES, ATOMS), jnp.float32, sharding=place("sample", "atom"))
    signals = jax.ShapeDtypeStruct((SAMPLES, FEATURES), jnp.float32, sharding=place("sample"))
    dictionary = jax.ShapeDtypeStruct((ATOMS, FEATURES), jnp.float32, sharding=place())
    gram = jax.ShapeDtypeStruct((ATOMS, ATOMS), jnp.float32, sharding=place("atom"))
    cross = jax.ShapeDtypeStruct((ATOMS, FEATURES), jnp.float32, sharding=place("atom"))
    penalty = jax.ShapeDtypeStruct((), jnp.float32, sharding=place())
    fn = jax.jit(
        build(mesh),
        donate_argnames=("codes", "dictionary", "gram", "cross"),
        out_shardings=(place("sample"), place(), place("atom"), place("atom"), place()),  # FAULT
    )
    return fn, (codes, dictionary, gram, cross, signals, penalty)
