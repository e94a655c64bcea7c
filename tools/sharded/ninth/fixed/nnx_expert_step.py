# mypy: ignore-errors
"""Fault: donated. The step pins the updated expert weights and momenta to "expert" alone while they came in split over "tp" as well, so none of the donated buffers can be reused and both layouts are held."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

EXPERTS, WIDTH, HIDDEN, BATCH, LENGTH, CLASSES = 16, 512, 2048, 16, 16, 64


class Experts(nnx.Module):
    def __init__(self, rngs):
        init = nnx.initializers.lecun_normal()
        self.router = nnx.Param(init(rngs.params(), (WIDTH, EXPERTS)))
        self.up = nnx.Param(init(rngs.params(), (EXPERTS, WIDTH, HIDDEN)))
        self.down = nnx.Param(init(rngs.params(), (EXPERTS, HIDDEN, WIDTH)))

    def __call__(self, x):
        gates = jax.nn.softmax(x @ self.router[...])
        hidden = jax.nn.gelu(jnp.einsum("td,edh->eth", x, self.up[...]))
        out = jnp.einsum("eth,ehd->etd", hidden, self.down[...])
        return x + jnp.einsum("te,etd->td", gates, out)


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.experts = Experts(rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x):
        tokens = self.experts(x.reshape(-1, WIDTH))
        return self.head(tokens.reshape(x.shape).mean(axis=1))


def sharding_of(mesh, leaf):
    spec = P("expert", None, "tp") if len(leaf.shape) == 3 else P()
    return NamedSharding(mesh, spec)


def finish(mesh, tree):
    """Keep the experts' layout through the update."""

    def pin(leaf):
        if leaf.ndim != 3:
            return leaf
        spec = P("expert", None, "tp")
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, spec))

    return jax.tree.map(pin, tree)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("expert", "tp"))
    tx = optax.sgd(1e-2, momentum=0.9)
    abstract = nnx.eval_shape(lambda: Classifier(nnx.Rngs(0)))
    graph, params = nnx.split(abstract, nnx.Param)
    params = nnx.to_pure_dict(params)
    opt_state = jax.eval_shape(tx.init, params)

    def loss_fn(params, batch):
        state = nnx.state(abstract, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        logits = nnx.merge(graph, state)(batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state)
        params = optax.apply_updates(params, updates)
        return finish(mesh, params), finish(mesh, opt_state), loss

    def place(tree):
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding_of(mesh, a)),
            tree,
        )

    whole = NamedSharding(mesh, P())
    batch = {
        "x": jax.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), jnp.float32, sharding=whole),
        "y": jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=whole),
    }
    args = (place(params), place(opt_state), batch)
    return jax.jit(step, donate_argnums=(0, 1)), args
