# mypy: ignore-errors
"""Clean. ZeRO-1: the weights are replicated on purpose, both Adam moments are split over all devices, and
only the finished updates are gathered."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

VOCAB, WIDTH, HIDDEN, TAGS, LAYERS = 8192, 512, 2048, 64, 3


def init(key):
    ks = iter(jax.random.split(key, 2 * LAYERS + 2))
    dense = lambda a, b: jax.random.normal(next(ks), (a, b)) * a**-0.5
    return {
        "embed": dense(VOCAB, WIDTH),
        "layers": [{"up": dense(WIDTH, HIDDEN), "down": dense(HIDDEN, WIDTH)} for _ in range(LAYERS)],
        "tags": dense(WIDTH, TAGS),
    }


def loss_fn(weights, tokens, tags):
    h = weights["embed"][tokens]
    for layer in weights["layers"]:
        h = h + jax.nn.gelu(h @ layer["up"]) @ layer["down"]
    logits = h @ weights["tags"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tags).mean()


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))
    tx = optax.adam(1e-3)

    def zero(leaf):
        return split if leaf.ndim == 2 else whole

    def train_step(weights, opt_state, tokens, tags):
        loss, grads = jax.value_and_grad(loss_fn)(weights, tokens, tags)
        grads = jax.tree.map(lambda g: lax.with_sharding_constraint(g, split), grads)
        updates, opt_state = tx.update(grads, opt_state, weights)
        updates = jax.tree.map(lambda u: lax.with_sharding_constraint(u, whole), updates)
        return optax.apply_updates(weights, updates), opt_state, loss

    def abstract(tree, sharding):
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding(a)), tree
        )

    shapes = jax.eval_shape(init, jax.random.key(0))
    weights = abstract(shapes, lambda _: whole)
    opt_state = abstract(jax.eval_shape(tx.init, shapes), zero)
    tokens = jax.ShapeDtypeStruct((64, 128), jnp.int32, sharding=split)
    shardings = jax.tree.map(lambda a: a.sharding, (weights, opt_state))
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*shardings, whole))
    return step, (weights, opt_state, tokens, tokens)
