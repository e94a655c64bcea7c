# mypy: ignore-errors
"""Clean. Session-based recommendation: the item table and its Adagrad accumulator are split by row over all chips, the
small recurrent cell is whole, and scores are split by item."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ITEMS, DIM, HIDDEN = 1 << 21, 128, 256
SESSIONS, CLICKS, NEGATIVES = 1024, 8, 4096

PARAMS = {
    "items": ((ITEMS, DIM), ("rows", "feature")),
    "cell_in": ((DIM, 3 * HIDDEN), (None, None)),
    "cell_rec": ((HIDDEN, 3 * HIDDEN), (None, None)),
    "project": ((HIDDEN, DIM), (None, None)),
}
LOGICAL = {"rows": ("data", "model"), "feature": None, "session": "data", "candidate": "model"}


def spec(*names):
    return P(*(LOGICAL[n] if n is not None else None for n in names))


def gru(params, x):
    """Runs the clicks of every session through one recurrent cell; returns the last state."""

    def cell(h, xt):
        zi, ri, ni = jnp.split(xt @ params["cell_in"], 3, axis=-1)
        zh, rh, nh = jnp.split(h @ params["cell_rec"], 3, axis=-1)
        z, r = jax.nn.sigmoid(zi + zh), jax.nn.sigmoid(ri + rh)
        return z * h + (1 - z) * jnp.tanh(ni + r * nh), None

    h = jnp.zeros((x.shape[0], HIDDEN), x.dtype)
    h, _ = jax.lax.scan(cell, h, jnp.swapaxes(x, 0, 1))
    return h


def make_clean(devices):
    mesh = jax.sharding.Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    tx = optax.adagrad(0.05)

    def named(*names):
        return NamedSharding(mesh, spec(*names))

    def pin(x, *names):
        return jax.lax.with_sharding_constraint(x, named(*names))

    shardings = {k: named(*names) for k, (_, names) in PARAMS.items()}

    def loss_fn(params, batch):
        clicks = pin(params["items"][batch["clicks"]], "session", None, None)
        query = pin(gru(params, clicks) @ params["project"], "session", None)
        positive = pin(params["items"][batch["next"]], "session", None)
        negatives = pin(params["items"][batch["negatives"]], "candidate", None)
        hit = jnp.sum(query * positive, axis=-1)
        miss = pin(query @ negatives.T, "session", "candidate")
        return jnp.mean(jnp.logaddexp(hit, jax.nn.logsumexp(miss, axis=-1)) - hit)

    def step(params, opt, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    params = {k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=shardings[k]) for k, (s, _) in PARAMS.items()}
    opt_shapes = jax.eval_shape(tx.init, params)
    opt_shardings = optax.tree_map_params(
        tx, lambda _, s: s, opt_shapes, shardings, transform_non_params=lambda _: named())
    opt = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), opt_shapes, opt_shardings)

    def ids(shape, *names):
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=named(*names))

    batch = {
        "clicks": ids((SESSIONS, CLICKS), "session", None),
        "next": ids((SESSIONS,), "session"),
        "negatives": ids((NEGATIVES,), "candidate"),
    }
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, opt_shardings, named()))
    return fn, (params, opt, batch)
