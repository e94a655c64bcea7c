# mypy: ignore-errors
"""Clean. Shampoo's statistics and inverse roots are split by rows, as the matrices they belong to.

Load forecasting for a power grid: an MLP mixer over (bus, hour) patches, the weights FSDP-sharded, trained
with a small Shampoo (Gupta, Koren, Singer 2018). The inverse roots are refreshed by another program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, PATCHES, DIM, HIDDEN = 6, 256, 512, 2048
FEATURES, HORIZON, BATCH = 96, 24, 32


class ShampooState(NamedTuple):
    momentum: Any
    statistics: Any  # a (left, right) pair per weight matrix, None for vectors
    roots: Any


def shampoo(rate, momentum=0.9, decay=0.99):
    def pair(p):
        if p.ndim < 3:
            return None
        n, rows, columns = p.shape
        return jnp.zeros((n, rows, rows), p.dtype), jnp.zeros((n, columns, columns), p.dtype)

    def init(params):
        pairs = jax.tree.map(pair, params)
        return ShampooState(jax.tree.map(jnp.zeros_like, params), pairs, pairs)

    def accumulate(g, stats):
        if stats is None:
            return None
        left, right = stats
        return (
            decay * left + (1 - decay) * jnp.einsum("nij,nkj->nik", g, g),
            decay * right + (1 - decay) * jnp.einsum("nji,njk->nik", g, g),
        )

    def precondition(g, roots):
        if roots is None:
            return g
        left, right = roots
        return jnp.einsum("nij,njk,nkl->nil", left, g, right)

    def update(grads, state, params=None):
        statistics = jax.tree.map(accumulate, grads, state.statistics)
        direction = jax.tree.map(precondition, grads, state.roots)
        velocity = jax.tree.map(lambda m, d: momentum * m + d, state.momentum, direction)
        return jax.tree.map(lambda v: -rate * v, velocity), ShampooState(velocity, statistics, state.roots)

    return optax.GradientTransformation(init, update)


def init_params():
    n = LAYERS
    return {
        "embed": jnp.zeros((1, FEATURES, DIM)),
        "mixer": {
            "token_in": jnp.zeros((n, PATCHES, HIDDEN // 4)),
            "token_out": jnp.zeros((n, HIDDEN // 4, PATCHES)),
            "channel_in": jnp.zeros((n, DIM, HIDDEN)),
            "channel_out": jnp.zeros((n, HIDDEN, DIM)),
            "scale": jnp.ones((n, DIM)),
        },
        "head": jnp.zeros((1, DIM, HORIZON)),
    }


def state_shardings(mesh, params, opt_state):
    """FSDP over the input dimension of the matrices; the optimizer state follows the parameters."""
    fsdp, whole = NamedSharding(mesh, P(None, "fsdp")), NamedSharding(mesh, P())
    by_shape = {p.shape: fsdp if p.ndim == 3 else whole for p in jax.tree.leaves(params)}
    place = jax.tree.map(lambda p: by_shape[p.shape], params)
    return place, jax.tree.map(lambda s: by_shape.get(s.shape, fsdp), opt_state)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp"))
    tx = shampoo(3e-3)
    params = jax.eval_shape(init_params)
    opt_state = jax.eval_shape(tx.init, params)
    place, opt_place = state_shardings(mesh, params, opt_state)

    def norm(x, scale):
        return scale * (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    @jax.checkpoint
    def block(x, p):
        y = jnp.swapaxes(norm(x, p["scale"]), 1, 2)
        x = x + jnp.swapaxes(jax.nn.gelu(y @ p["token_in"]) @ p["token_out"], 1, 2)
        x = x + jax.nn.gelu(norm(x, p["scale"]) @ p["channel_in"]) @ p["channel_out"]
        return jax.lax.with_sharding_constraint(x, rows), None

    def loss_fn(params, history, load):
        x = jax.lax.with_sharding_constraint(history @ params["embed"][0], rows)
        x, _ = jax.lax.scan(block, x, params["mixer"])
        error = x @ params["head"][0] - load
        return jnp.mean(jnp.maximum(0.9 * error, -0.1 * error))  # pinball: the upper decile

    def train_step(params, opt_state, history, load):
        loss, grads = jax.value_and_grad(loss_fn)(params, history, load)
        grads = jax.lax.with_sharding_constraint(grads, place)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def abstract(tree, shardings):
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

    history = jax.ShapeDtypeStruct((BATCH, PATCHES, FEATURES), jnp.float32, sharding=rows)
    load = jax.ShapeDtypeStruct((BATCH, PATCHES, HORIZON), jnp.float32, sharding=rows)
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(place, opt_place, None))
    return step, (abstract(params, place), abstract(opt_state, opt_place), history, load)
