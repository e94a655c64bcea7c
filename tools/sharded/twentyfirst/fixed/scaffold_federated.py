# mypy: ignore-errors
"""Clean. The donated control variates come in and leave split by client.

Federated training with SCAFFOLD (Karimireddy et al. 2020), all clients of a round simulated at once: each
client takes a few local steps corrected by its control variate, the server averages the differences.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CLIENTS, LOCAL_STEPS, LOCAL_BATCH = 64, 8, 32
WIDTHS = (784, 1024, 512, 64)
LOCAL_RATE, SERVER_RATE = 0.05, 1.0


def weights_like(make):
    return {
        f"dense_{i}": {"w": make((n_in, n_out)), "b": make((n_out,))}
        for i, (n_in, n_out) in enumerate(zip(WIDTHS[:-1], WIDTHS[1:], strict=True))
    }


def forward(weights, x):
    for i in range(len(WIDTHS) - 1):
        layer = weights[f"dense_{i}"]
        x = x @ layer["w"] + layer["b"]
        if i + 2 < len(WIDTHS):
            x = jax.nn.gelu(x)
    return x


def loss(weights, images, labels):
    scores = jax.nn.log_softmax(forward(weights, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def local_training(server, server_control, control, images, labels):
    """One client: LOCAL_STEPS corrected steps; gives the weight change and the new control variate."""
    correction = jax.tree.map(lambda c, ci: c - ci, server_control, control)

    def step(weights, batch):
        value, grads = jax.value_and_grad(loss)(weights, *batch)
        weights = jax.tree.map(lambda w, g, c: w - LOCAL_RATE * (g + c), weights, grads, correction)
        return weights, value

    weights, values = jax.lax.scan(step, server, (images, labels))
    delta = jax.tree.map(lambda new, old: new - old, weights, server)
    fresh = jax.tree.map(lambda c, d: -c - d / (LOCAL_STEPS * LOCAL_RATE), correction, delta)
    return delta, fresh, values.mean()


def federated_round(server, server_control, controls, images, labels):
    each = jax.vmap(local_training, in_axes=(None, None, 0, 0, 0))
    delta, fresh, losses = each(server, server_control, controls, images, labels)
    server = jax.tree.map(lambda w, d: w + SERVER_RATE * d.mean(0), server, delta)
    drift = jax.tree.map(lambda f, c: (f - c).mean(0), fresh, controls)
    server_control = jax.tree.map(jnp.add, server_control, drift)
    return server, server_control, fresh, losses.mean()


class Federation:
    """Where the quantities of a round live on the simulation's devices."""

    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("clients",))

    def sharding(self, *spec):
        return NamedSharding(self.mesh, P(*spec))

    @functools.cached_property
    def everywhere(self):
        return self.sharding()

    @functools.cached_property
    def by_client(self):
        return self.sharding("clients")

    @functools.cached_property
    def by_feature(self):
        return weights_like(lambda shape: self.sharding(*(None,) * len(shape), "clients"))

    def compile(self):
        return jax.jit(
            federated_round,
            donate_argnames=("server", "server_control", "controls"),
            out_shardings=(self.everywhere, self.everywhere, self.by_client, self.everywhere),
        )


def make_fixed(devices):
    federation = Federation(devices)

    def struct(shape, dtype=jnp.float32, sharding=federation.everywhere):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    server = weights_like(struct)
    controls = weights_like(lambda shape: struct((CLIENTS, *shape), sharding=federation.by_client))
    batches = (CLIENTS, LOCAL_STEPS, LOCAL_BATCH)
    images = struct((*batches, WIDTHS[0]), sharding=federation.by_client)
    labels = struct(batches, jnp.int32, federation.by_client)
    return federation.compile(), (server, server, controls, images, labels)
