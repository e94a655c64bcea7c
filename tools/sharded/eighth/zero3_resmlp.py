# mypy: ignore-errors
"""Fault: gathered. All layers' weights are gathered in one go before the loop over layers, so that the whole stack is
on every device through forward and backward pass instead of one layer at a time."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

LAYERS, WIDTH, HIDDEN = 12, 512, 2048
BATCH, PIXELS, CLASSES = 1024, 3072, 128


def block(x, w):
    y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w["scale"]
    y = jax.nn.gelu(y @ w["up"]) @ w["down"]
    return x + y


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))

    def sharding(*spec):
        return NamedSharding(mesh, P(*spec))

    specs = {
        "stem": sharding("fsdp", None),
        "layers": {
            "scale": sharding(),
            "up": sharding(None, "fsdp", None),
            "down": sharding(None, "fsdp", None),
        },
        "head": sharding("fsdp", None),
    }
    shapes = {
        "stem": (PIXELS, WIDTH),
        "layers": {
            "scale": (LAYERS, WIDTH),
            "up": (LAYERS, WIDTH, HIDDEN),
            "down": (LAYERS, HIDDEN, WIDTH),
        },
        "head": (WIDTH, CLASSES),
    }

    def gather(tree):
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, sharding()), tree)

    def split_batch(x):
        return jax.lax.with_sharding_constraint(x, sharding("fsdp", None))

    def forward(params, images):
        x = split_batch(images @ gather(params["stem"]))
        layers = gather(params["layers"])  # FAULT

        @jax.checkpoint
        def body(x, w):
            return split_batch(block(x, w)), None

        x, _ = jax.lax.scan(body, x, layers)
        return x @ gather(params["head"])

    def loss_fn(params, images, labels):
        logits = forward(params, images)
        picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    def step(params, momentum, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        grads = jax.lax.with_sharding_constraint(grads, specs)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum)
        return params, momentum, loss

    def struct(shape, s):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=s)

    params = jax.tree.map(struct, shapes, specs, is_leaf=lambda t: isinstance(t, tuple))
    images = struct((BATCH, PIXELS), sharding("fsdp", None))
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=sharding("fsdp"))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(specs, specs, sharding()))
    return fn, (params, params, images, labels)
