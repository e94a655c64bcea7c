# mypy: ignore-errors
"""Fault: gathered. The whole stack of FSDP weights is gathered before the loop over layers and is kept for the backward pass; each chip holds all the layers' full weights at once."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, WIDTH, HIDDEN, PATCHES, PATCH_DIM, CLASSES = 8, 1024, 4096, 64, 768, 1024
BATCH = 32


def layer_norm(x):
    x = x.astype(jnp.float32)
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return x.astype(jnp.bfloat16)


def mixer_layer(x, w):
    y = jnp.einsum("bpd,pq->bqd", layer_norm(x), w["tokens"])
    x = x + jax.nn.gelu(y)
    y = jax.nn.gelu(layer_norm(x) @ w["up"])
    return x + y @ w["down"]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())
    batch_split = NamedSharding(mesh, P("fsdp"))
    layer_split = NamedSharding(mesh, P(None, "fsdp"))
    matrix_split = NamedSharding(mesh, P("fsdp"))

    def gather(tree):
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, whole), tree)

    def forward(params, patches):
        x = patches @ gather(params["stem"])
        layers = gather(params["layers"])  # FAULT

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def body(x, w):
            x = mixer_layer(x, w)
            return jax.lax.with_sharding_constraint(x, batch_split), None

        x, _ = jax.lax.scan(body, x, layers)
        return layer_norm(x).mean(axis=1) @ gather(params["head"])

    def loss_fn(params, batch):
        logits = forward(params, batch["patches"]).astype(jnp.float32)
        logp = jax.nn.log_softmax(logits)
        picked = jnp.take_along_axis(logp, batch["label"][:, None], axis=1)
        return -picked.mean()

    def step(params, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        params = jax.tree.map(lambda p, g: p - 0.01 * g.astype(p.dtype), params, grads)
        return params, loss

    def struct(shape, sharding, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    params = {
        "stem": struct((PATCH_DIM, WIDTH), matrix_split),
        "layers": {
            "tokens": struct((LAYERS, PATCHES, PATCHES), layer_split),
            "up": struct((LAYERS, WIDTH, HIDDEN), layer_split),
            "down": struct((LAYERS, HIDDEN, WIDTH), layer_split),
        },
        "head": struct((WIDTH, CLASSES), matrix_split),
    }
    batch = {
        "patches": struct((BATCH, PATCHES, PATCH_DIM), batch_split),
        "label": struct((BATCH,), batch_split, jnp.int32),
    }
    out = (jax.tree.map(lambda p: p.sharding, params), whole)
    return jax.jit(step, donate_argnums=0, out_shardings=out), (params, batch)
