# mypy: ignore-errors
"""Fault: dropped. The largest table has 1000003 rows, which 8 does not divide, and the helper then leaves it (and its accumulator and gradient) whole on every device."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

FEATURES = {  # categorical feature -> vocabulary
    "item": 1_000_003,
    "user_bucket": 524_288,
    "category": 16_384,
    "brand": 65_536,
    "country": 256,
    "hour": 168,
}
DIM = 32
DENSE = 13
BATCH = 16_384
BOTTOM = (512, 256, DIM)
TOP = (512, 256, 1)


def mlp_shapes(n_in, widths):
    out = []
    for w in widths:
        out.append({"w": (n_in, w), "b": (w,)})
        n_in = w
    return out


def model_shapes():
    n = len(FEATURES) + 1
    tables = {name: (rows, DIM) for name, rows in FEATURES.items()}  # FAULT
    return {"tables": tables, "bottom": mlp_shapes(DENSE, BOTTOM), "top": mlp_shapes(n * (n - 1) // 2 + DIM, TOP)}


def spec_for(path, shape, n_dev):
    """Tables by rows, the two perceptrons on every device."""
    if path[0].key == "tables" and shape[0] % n_dev == 0:  # FAULT
        return P("dev", None)
    return P()


def mlp(layers, x):
    for i, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"]
        if i + 1 < len(layers):
            x = jax.nn.relu(x)
    return x


def predict(params, dense, ids):
    bottom = mlp(params["bottom"], dense)
    vectors = [bottom] + [jnp.take(params["tables"][name], ids[name], axis=0) for name in FEATURES]
    stacked = jnp.stack(vectors, 1)
    dots = jnp.einsum("bnd,bmd->bnm", stacked, stacked)
    i, j = np.tril_indices(stacked.shape[1], -1)
    return mlp(params["top"], jnp.concatenate([bottom, dots[:, i, j]], -1))[:, 0]


def build_step(mesh, opt):
    over_batch = NamedSharding(mesh, P("dev"))

    def step(params, opt_state, batch):
        def loss(p):
            logit = jax.lax.with_sharding_constraint(predict(p, batch["dense"], batch["ids"]), over_batch)
            return optax.sigmoid_binary_cross_entropy(logit, batch["click"]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = opt.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("dev",))
    opt = optax.adagrad(0.02)
    place = lambda path, s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, spec_for(path, s, mesh.size)))
    params = jax.tree_util.tree_map_with_path(place, model_shapes(), is_leaf=lambda s: isinstance(s, tuple))
    where = jax.tree.map(lambda p: p.sharding, params)
    on_all = NamedSharding(mesh, P())
    state_where = optax.tree_utils.tree_map_params(
        opt, lambda _, sh: sh, jax.eval_shape(opt.init, params), where, transform_non_params=lambda _: on_all)
    rows = NamedSharding(mesh, P("dev"))
    batch = {
        "dense": jax.ShapeDtypeStruct((BATCH, DENSE), jnp.float32, sharding=rows),
        "ids": {name: jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=rows) for name in FEATURES},
        "click": jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows),
    }
    step = jax.jit(build_step(mesh, opt), in_shardings=(where, state_where, None),
                   out_shardings=(where, state_where, on_all), donate_argnums=(0, 1))
    return step, (params, jax.eval_shape(opt.init, params), batch)
