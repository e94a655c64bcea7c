# mypy: ignore-errors
"""Clean. Tensor parallelism of a gated MLP regressor in nnx: up and gate split by column, down by row,
the optimizer's moments as their weights, activations over data."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

SPEC_BY_NAME = {"gate": P(None, "tp"), "up": P(None, "tp"), "down": P("tp", None), "readout": P()}


class GatedMlp(nnx.Module):
    def __init__(self, width, hidden, rngs):
        self.gate = nnx.Linear(width, hidden, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(width, hidden, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(hidden, width, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.silu(self.gate(x)) * self.up(x))


class Regressor(nnx.Module):
    def __init__(self, width, hidden, rngs):
        self.first = GatedMlp(width, hidden, rngs)
        self.second = GatedMlp(width, hidden, rngs)
        self.readout = nnx.Linear(width, 8, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.readout(self.second(self.first(x)))


def spec_of(path):
    names = [str(getattr(k, "key", getattr(k, "name", ""))) for k in path]
    return next((SPEC_BY_NAME[n] for n in names if n in SPEC_BY_NAME), P())


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))
    model = nnx.eval_shape(lambda: Regressor(1024, 4096, nnx.Rngs(0)))
    graph, state = nnx.split(model)
    params = nnx.to_pure_dict(state)
    tx = optax.adam(1e-3)

    def abstract(tree):
        return jax.tree_util.tree_map_with_path(
            lambda path, a: jax.ShapeDtypeStruct(
                a.shape, a.dtype, sharding=NamedSharding(mesh, spec_of(path))
            ),
            tree,
        )

    def step(params, opt_state, x, y):
        def loss_fn(p):
            s = jax.tree.map(lambda a: a, state)
            nnx.replace_by_pure_dict(s, p)
            return jnp.mean((nnx.merge(graph, s)(x) - y) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    args = abstract((params, jax.eval_shape(tx.init, params)))
    shardings = jax.tree.map(lambda a: a.sharding, args)
    rows = NamedSharding(mesh, P("dp"))
    x = jax.ShapeDtypeStruct((512, 1024), jnp.float32, sharding=rows)
    y = jax.ShapeDtypeStruct((512, 8), jnp.float32, sharding=rows)
    fn = jax.jit(
        step, donate_argnums=(0, 1), out_shardings=(*shardings, NamedSharding(mesh, P()))
    )
    return fn, (*args, x, y)
