# mypy: ignore-errors
"""Clean. Data-parallel training of a tabular autoencoder with replicated weights and ZeRO-1: the Adam moments are
split over the devices, the update is computed split and gathered into the weights."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

FEATURES, SIZES, BATCH = 1024, (2048, 1024, 256), 2048


def param_shapes():
    dims = (FEATURES,) + SIZES
    dims = dims + dims[-2::-1]
    return [
        {"w": jax.ShapeDtypeStruct((i, o), jnp.float32), "b": jax.ShapeDtypeStruct((o,), jnp.float32)}
        for i, o in zip(dims[:-1], dims[1:])
    ]


def reconstruct(params, x):
    for i, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        if i + 1 < len(params):
            x = jax.nn.gelu(x)
    return x


def corrupt(key, x, rate=0.15):
    mask = jax.random.bernoulli(key, rate, x.shape)
    return jnp.where(mask, 0.0, x), mask


def loss_fn(params, x, mask_key):
    noisy, mask = corrupt(mask_key, x)
    err = jnp.square(reconstruct(params, noisy) - x)
    return jnp.mean(err) + jnp.sum(err * mask) / jnp.maximum(jnp.sum(mask), 1)


def zero1_spec(leaf, n):
    """Moments: the first dimension over all devices where it divides."""
    if leaf.ndim and leaf.shape[0] % n == 0:
        return P("data", *[None] * (leaf.ndim - 1))
    return P()


class Trainer:
    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("data",))
        self.tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, 10_000))
        self.params = param_shapes()
        self.opt = jax.eval_shape(self.tx.init, self.params)
        n = self.mesh.size
        self.rep = NamedSharding(self.mesh, P())
        self.rows = NamedSharding(self.mesh, P("data"))
        self.param_split = jax.tree.map(lambda x: NamedSharding(self.mesh, zero1_spec(x, n)), self.params)
        self.opt_split = jax.tree.map(lambda x: NamedSharding(self.mesh, zero1_spec(x, n)), self.opt)

    def step(self, params, opt, x, key):
        x = jax.lax.with_sharding_constraint(x, self.rows)
        loss, grads = jax.value_and_grad(loss_fn)(params, x, key)
        # Reduce-scatter: each device updates its own slice.
        grads = jax.lax.with_sharding_constraint(grads, self.param_split)
        mine = jax.lax.with_sharding_constraint(params, self.param_split)
        updates, opt = self.tx.update(grads, opt, mine)
        params = optax.apply_updates(mine, updates)
        return params, opt, {"loss": loss, "norm": optax.global_norm(grads)}

    def compile_args(self):
        fn = jax.jit(
            self.step,
            in_shardings=(self.rep, self.opt_split, self.rows, self.rep),
            out_shardings=(self.rep, self.opt_split, self.rep),
            donate_argnums=(0, 1),
        )
        x = jax.ShapeDtypeStruct((BATCH, FEATURES), jnp.float32)
        key = jax.eval_shape(lambda: jax.random.key(0))
        return fn, (self.params, self.opt, x, key)


def make_clean(devices):
    return Trainer(devices).compile_args()
