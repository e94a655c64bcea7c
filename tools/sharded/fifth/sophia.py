# mypy: ignore-errors
"""Fault: optimizer. The diagonal Hessian estimate of the second-order optimizer is laid out replicated,
while the momentum and the parameters it belongs to are split."""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

TABLES = {"user": 40960, "item": 24576, "query": 8192}
EMBED, HIDDEN, OUT, BATCH = 128, 1024, 512, 4096


class SophiaState(NamedTuple):
    step: Any
    momentum: Any
    hessian: Any


class Train(NamedTuple):
    params: Any
    opt: SophiaState


def init_params(key):
    a, b, c, *ks = jax.random.split(key, 3 + len(TABLES))
    tables = {n: 0.02 * jax.random.normal(k, (rows, EMBED)) for k, (n, rows) in zip(ks, TABLES.items())}
    dense = [
        (jax.random.normal(k, (i, o)) / np.sqrt(i), jnp.zeros(o))
        for k, (i, o) in zip((a, b, c), [(EMBED * len(TABLES), HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUT)])
    ]
    return {"tables": tables, "dense": dense}


def init_sophia(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return SophiaState(jnp.zeros((), jnp.int32), zeros, zeros)


def logits_fn(params, batch):
    x = jnp.concatenate([params["tables"][n][batch[n]] for n in TABLES], -1)
    for w, b in params["dense"][:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params["dense"][-1]
    return x @ w + b


def loss_fn(params, batch, labels):
    logp = jax.nn.log_softmax(logits_fn(params, batch))
    return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], 1))


def gauss_newton_bartlett(params, batch, key):
    """Squared gradients with labels drawn from the model itself."""
    drawn = jax.random.categorical(key, jax.lax.stop_gradient(logits_fn(params, batch)))
    grads = jax.grad(loss_fn)(params, batch, drawn)
    return jax.tree.map(lambda g: BATCH * g * g, grads)


def sophia_step(train, batch, labels, key, lr=1e-3, rho=0.04, b1=0.96, b2=0.99):
    params, (step, mom, hess) = train
    loss, grads = jax.value_and_grad(loss_fn)(params, batch, labels)
    mom = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, mom, grads)

    def refresh(h):
        return jax.tree.map(lambda a, e: b2 * a + (1 - b2) * e, h, gauss_newton_bartlett(params, batch, key))

    hess = jax.lax.cond(step % 10 == 0, refresh, lambda h: h, hess)
    params = jax.tree.map(
        lambda p, m, h: p - lr * jnp.clip(m / jnp.maximum(rho * h, 1e-12), -1, 1), params, mom, hess
    )
    return Train(params, SophiaState(step + 1, mom, hess)), loss


def param_specs(params):
    """Rows of the tables and columns of the dense layers over all devices."""
    return {
        "tables": jax.tree.map(lambda t: P("shard", None), params["tables"]),
        "dense": [(P(None, "shard"), P("shard")) for _ in params["dense"]],
    }


def train_specs(params):
    specs = param_specs(params)
    curvature = jax.tree.map(lambda p: P(), params)  # FAULT
    return Train(specs, SophiaState(step=P(), momentum=specs, hessian=curvature))  # FAULT


def train_specs_split(params):
    specs = param_specs(params)
    return Train(specs, SophiaState(step=P(), momentum=specs, hessian=specs))


def build(devices, make_specs):
    mesh = Mesh(np.array(devices), ("shard",))

    def named(spec):
        return jax.tree.map(lambda s: NamedSharding(mesh, s), spec, is_leaf=lambda s: isinstance(s, P))

    params = jax.eval_shape(init_params, jax.random.key(0))
    train = Train(params, jax.eval_shape(init_sophia, params))
    layout = named(make_specs(params))
    train = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), train, layout)  # FAULT
    rows = NamedSharding(mesh, P("shard"))
    batch = {n: jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows) for n in TABLES}
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows)
    key = jax.eval_shape(lambda: jax.random.key(0))
    fn = jax.jit(sophia_step, donate_argnums=0, out_shardings=(layout, None))
    return fn, (train, batch, labels, key)


def make_faulty(devices):
    return build(devices, train_specs)


def make_fixed(devices):
    return build(devices, train_specs_split)
