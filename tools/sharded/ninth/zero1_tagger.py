# mypy: ignore-errors
"""Clean. ZeRO-1: parameters and batch follow plain data parallelism, the Adam moments are split over the same axis, and the updates are gathered once per step."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

FEATURES, WIDTH, LABELS, BATCH = 1024, 4096, 1024, 2048
TX = optax.adamw(1e-3)


def init():
    return {
        "stem": jnp.zeros((FEATURES, WIDTH)),
        "head": jnp.zeros((WIDTH, LABELS)),
        "bias": jnp.zeros((LABELS,)),
    }


def apply(params, x):
    x = jax.nn.relu(x @ params["stem"])
    return x @ params["head"] + params["bias"]


def loss_fn(params, x, labels):
    logits = apply(params, x)
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def zero1_sharding(mesh, leaf):
    """Moments of matrices are cut by rows; vectors and counters are small."""
    return NamedSharding(mesh, P("data") if leaf.ndim == 2 else P())


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    whole = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("data"))
    params = jax.eval_shape(init)
    opt_state = jax.eval_shape(TX.init, params)
    grads_at = jax.tree.map(lambda a: zero1_sharding(mesh, a), params)
    opt_at = jax.tree.map(lambda a: zero1_sharding(mesh, a), opt_state)

    def step(params, opt_state, x, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, labels)
        grads = jax.lax.with_sharding_constraint(grads, grads_at)
        mine = jax.lax.with_sharding_constraint(params, grads_at)
        updates, opt_state = TX.update(grads, opt_state, mine)
        return optax.apply_updates(mine, updates), opt_state, loss

    def place(tree, shardings):
        return jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s),
            tree,
            shardings,
        )

    params_at = jax.tree.map(lambda _: whole, params)
    args = (
        place(params, params_at),
        place(opt_state, opt_at),
        jax.ShapeDtypeStruct((BATCH, FEATURES), jnp.float32, sharding=rows),
        jax.ShapeDtypeStruct((BATCH, LABELS), jnp.float32, sharding=rows),
    )
    out = (params_at, opt_at, whole)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), args
