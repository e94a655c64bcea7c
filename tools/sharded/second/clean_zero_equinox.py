# mypy: ignore-errors
"""Clean. An Equinox convolutional encoder on 2 x 4 devices: images over both axes, kernels and Adam's moments split over their channels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class Encoder(eqx.Module):
    convs: list
    head: eqx.nn.Linear

    def __init__(self, key):
        ks = jr.split(key, 5)
        sizes = [8, 64, 128, 256, 512]
        self.convs = [eqx.nn.Conv2d(a, b, 3, 2, 1, use_bias=False, key=k) for a, b, k in zip(sizes, sizes[1:], ks)]
        self.head = eqx.nn.Linear(512, 64, use_bias=False, key=ks[-1])

    def __call__(self, x):
        for c in self.convs:
            x = jax.checkpoint(lambda c, x: jax.nn.relu(c(x)))(c, x)
        return self.head(x.mean((1, 2)))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("dp", "zero"))
    model = eqx.filter_eval_shape(Encoder, jr.PRNGKey(0))
    params, static = eqx.partition(model, lambda l: isinstance(l, jax.ShapeDtypeStruct))
    tx = optax.adam(1e-3)

    def sharding(s):
        return NamedSharding(mesh, P(("dp", "zero")) if s.ndim and s.shape[0] % 8 == 0 else P())

    put = lambda t: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding(s)), t)
    params = put(params)
    state = put(jax.eval_shape(tx.init, params))

    def step(params, state, images, targets):
        def loss(p):
            return jnp.mean((jax.vmap(eqx.combine(p, static))(images) - targets) ** 2)

        g = jax.grad(loss)(params)
        u, state = tx.update(g, state)
        return eqx.apply_updates(params, u), state

    batch = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P(("dp", "zero"))))
    outs = jax.tree.map(lambda s: s.sharding, (params, state))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=outs), (params, state, batch(256, 8, 128, 128), batch(256, 64))
