# mypy: ignore-errors
"""Fault: optimizer. The shardings of the optimizer state are looked up by shape and dtype of the parameters; the first
moments are kept in bfloat16, are therefore not found, and lie whole on every device. The shape alone should be the key.

Pretraining of a vision transformer (flax linen, optax) with parameters and batch split over one axis
of eight devices."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

DEPTH, WIDTH, HEADS, PATCH, IMAGE, CLASSES, BATCH = 12, 1024, 16, 16, 224, 8192, 64


class Block(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x, _):
        x = jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P("fsdp")))
        dense = lambda n, name: nn.Dense(n, use_bias=False, dtype=jnp.bfloat16, name=name)
        h = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        q, k, v = jnp.split(dense(3 * WIDTH, "qkv")(h).reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
        mixed = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + dense(WIDTH, "proj")(mixed)
        h = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        x = x + dense(WIDTH, "down")(nn.gelu(dense(4 * WIDTH, "up")(h)))
        return x, None


class ViT(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, images):
        b, side = images.shape[0], IMAGE // PATCH
        x = images.reshape(b, side, PATCH, side, PATCH, 3).swapaxes(2, 3).reshape(b, side * side, -1)
        x = nn.Dense(WIDTH, dtype=jnp.bfloat16, name="patch")(x)
        x = x + self.param("position", nn.initializers.normal(0.02), x.shape[1:]).astype(x.dtype)
        layers = nn.scan(nn.remat(Block, prevent_cse=False), variable_axes={"params": 0},
                         split_rngs={"params": True}, length=DEPTH)
        x, _ = layers(self.mesh, name="layers")(x, None)
        x = nn.LayerNorm(dtype=jnp.bfloat16)(x).mean(axis=1)
        return nn.Dense(CLASSES, dtype=jnp.bfloat16, name="head")(x).astype(jnp.float32)


def fsdp_spec(path, leaf, ways):
    """Splits the last large dimension that divides; the layer dimension of the scanned blocks stays."""
    if leaf.size < 2 ** 16:
        return P()
    first = 1 if "layers" in jax.tree_util.keystr(path) else 0
    spec = [None] * leaf.ndim
    for dim in reversed(range(first, leaf.ndim)):
        if leaf.shape[dim] % ways == 0:
            spec[dim] = "fsdp"
            break
    return P(*spec)


class Shardings:
    """Shardings of the parameters, and of every state that has the parameters' form."""

    def __init__(self, mesh, params):
        self.mesh = mesh
        self.params = jax.tree_util.tree_map_with_path(
            lambda path, p: NamedSharding(mesh, fsdp_spec(path, p, mesh.size)), params)
        leaves, shardings = jax.tree.leaves(params), jax.tree.leaves(self.params)
        self.known = {(p.shape, p.dtype): s for p, s in zip(leaves, shardings)}  # FAULT

    def of_state(self, state):
        rest = NamedSharding(self.mesh, P())
        return jax.tree.map(lambda leaf: self.known.get((leaf.shape, leaf.dtype), rest), state)  # FAULT


def with_shardings(tree, shardings):
    return jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), tree, shardings)


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("fsdp",))
    batch_sharding = NamedSharding(mesh, P("fsdp"))
    model = ViT(mesh)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10_000, 300_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0),
                     optax.adamw(schedule, b2=0.95, weight_decay=0.05, mu_dtype=jnp.bfloat16))

    def loss_fn(params, images, labels):
        logits = model.apply({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(params, opt_state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    images = jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.bfloat16, sharding=batch_sharding)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=batch_sharding)
    params = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
    opt_state = jax.eval_shape(tx.init, params)
    shardings = Shardings(mesh, params)
    state_shardings = (shardings.params, shardings.of_state(opt_state))
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*state_shardings, NamedSharding(mesh, P())))
    return step, (*with_shardings((params, opt_state), state_shardings), images, labels)
