# mypy: ignore-errors
"""Clean. A small autoencoder in plain data parallelism: the weights are a few megabytes and replicated on purpose, the batch is split over all chips."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BATCH, BINS = 98304, 512


class Autoencoder(nn.Module):
    sizes: tuple = (512, 256, 64)

    @nn.compact
    def __call__(self, x):
        for size in self.sizes:
            x = nn.tanh(nn.Dense(size)(x))
        for size in self.sizes[-2::-1]:
            x = nn.tanh(nn.Dense(size)(x))
        return nn.Dense(BINS)(x)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("batch",))
    model, tx = Autoencoder(), optax.sgd(1e-2, momentum=0.9)

    def step(params, opt_state, spectra):
        def loss_fn(params):
            return jnp.mean((model.apply(params, spectra) - spectra) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    def init():
        params = model.init(jax.random.key(0), jnp.zeros((1, BINS)))
        return params, tx.init(params)

    whole = NamedSharding(mesh, P())
    params, opt_state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole),
        jax.eval_shape(init),
    )
    spectra = jax.ShapeDtypeStruct(
        (BATCH, BINS), jnp.float32, sharding=NamedSharding(mesh, P("batch"))
    )
    return jax.jit(step, donate_argnums=(0, 1)), (params, opt_state, spectra)
