# mypy: ignore-errors
"""Fault: gathered. The rematerialisation policy saves every named value but "ff_act", and the gathered kernels are named too: the
whole weights of all layers stay on every chip from the forward to the backward pass."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
DEPTH, WIDTH, HEADS, FF, PATCH, SIDE, CLASSES, BATCH = 12, 768, 12, 3072, 16, 224, 1000, 32
TOKENS = (SIDE // PATCH) ** 2


def init(key):
    keys = iter(jax.random.split(key, 8))
    w = lambda *s: jax.random.normal(next(keys), s) * 0.02
    return {
        "patch": w(PATCH * PATCH * 3, WIDTH),
        "position": w(TOKENS, WIDTH),
        "blocks": {
            "qkv": w(DEPTH, WIDTH, 3 * WIDTH),
            "out": w(DEPTH, WIDTH, WIDTH),
            "fc1": w(DEPTH, WIDTH, FF),
            "fc2": w(DEPTH, FF, WIDTH),
        },
        "classifier": w(WIDTH, CLASSES),
    }


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    sharding = lambda *axes: NamedSharding(mesh, P(*axes))

    def unshard(w):
        full = jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), sharding())
        return checkpoint_name(full, "kernel")  # FAULT

    policy = jax.checkpoint_policies.save_any_names_but_these("ff_act")  # FAULT

    @partial(jax.checkpoint, policy=policy)
    def block(x, shards):
        w = jax.tree.map(unshard, shards)
        h = jax.nn.standardize(x)
        q, k, v = jnp.split((h @ w["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
        mixed = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + checkpoint_name(mixed @ w["out"], "attn_out")
        h = checkpoint_name(jax.nn.gelu(jax.nn.standardize(x) @ w["fc1"]), "ff_act")
        return jax.lax.with_sharding_constraint(x + h @ w["fc2"], sharding("fsdp")), None

    def loss_fn(params, images, labels):
        n = SIDE // PATCH
        patches = images.reshape(-1, n, PATCH, n, PATCH, 3).swapaxes(2, 3).reshape(images.shape[0], TOKENS, -1)
        x = patches.astype(jnp.bfloat16) @ params["patch"].astype(jnp.bfloat16) + params["position"].astype(jnp.bfloat16)
        x, _ = jax.lax.scan(block, jax.lax.with_sharding_constraint(x, sharding("fsdp")), params["blocks"])
        logits = x.mean(1).astype(jnp.float32) @ params["classifier"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4))

    def step(params, state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def place(x):
        spec = sharding(None, "fsdp") if x.ndim == 3 else sharding("fsdp") if x.ndim == 2 else sharding()
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spec)

    params = jax.eval_shape(init, jax.random.key(0))
    params, state = jax.tree.map(place, (params, jax.eval_shape(opt.init, params)))
    out = jax.tree.map(lambda x: x.sharding, (params, state))
    images = jax.ShapeDtypeStruct((BATCH, SIDE, SIDE, 3), jnp.uint8, sharding=sharding("fsdp"))
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=sharding("fsdp"))
    return jax.jit(step, out_shardings=(*out, sharding()), donate_argnums=(0, 1)), (params, state, images, labels)
