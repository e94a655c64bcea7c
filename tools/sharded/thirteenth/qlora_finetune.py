# mypy: ignore-errors
"""Clean. LoRA on a frozen int8 base: the base is divided over "fsdp" and gathered layer by layer under remat; the small adapters, their moments and the scales of the base are whole on purpose."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, FF, HEADS, VOCAB = 12, 1024, 4096, 8, 16384
RANK, ALPHA = 8, 16.0
BATCH, SEQ = 8, 1024
LINEARS = {"q": (DIM, DIM), "k": (DIM, DIM), "v": (DIM, DIM), "o": (DIM, DIM), "up": (DIM, FF), "down": (FF, DIM)}


def base_shapes():
    layers = {}
    for name, (i, o) in LINEARS.items():
        layers[name] = {"int8": jax.ShapeDtypeStruct((LAYERS, i, o), jnp.int8),
                        "scale": jax.ShapeDtypeStruct((LAYERS, o), jnp.float32)}
    return {"embed": jax.ShapeDtypeStruct((VOCAB, DIM), jnp.bfloat16), "layers": layers}


def init_adapters(key):
    make = lambda k, i, o: {"a": jax.random.normal(k, (LAYERS, i, RANK)) * i**-0.5, "b": jnp.zeros((LAYERS, RANK, o))}
    keys = jax.random.split(key, len(LINEARS))
    return {name: make(k, *shape) for k, (name, shape) in zip(keys, LINEARS.items())}


def base_spec(path, leaf):
    if leaf.dtype == jnp.int8:
        return P(None, "fsdp", None)
    return P("fsdp", None) if leaf.dtype == jnp.bfloat16 else P()


def linear(x, base, lora):
    weight = base["int8"].astype(x.dtype) * base["scale"].astype(x.dtype)
    low = (x @ lora["a"].astype(x.dtype)) @ lora["b"].astype(x.dtype)
    return x @ weight + low * (ALPHA / RANK)


def norm(x):
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt(jnp.square(f).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def block(keep, x, weights):
    base, lora = weights
    b, s, _ = x.shape
    lin = lambda name, y: linear(y, base[name], lora[name])
    y = norm(x)
    q, k, v = (lin(n, y).reshape(b, s, HEADS, -1) for n in "qkv")
    att = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (DIM // HEADS) ** -0.5
    att = jax.nn.softmax(jnp.where(jnp.tri(s, dtype=bool), att, -1e30)).astype(x.dtype)
    x = keep(x + lin("o", jnp.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, s, DIM)))
    x = x + lin("down", jax.nn.gelu(lin("up", norm(x))))
    return keep(x), None


def sft_loss(adapters, base, batch, keep):
    x = keep(base["embed"][batch["tokens"]])
    x, _ = jax.lax.scan(jax.checkpoint(partial(block, keep)), x, (base["layers"], adapters))

    def chunk(total, part):
        h, label, mask = part
        logits = (norm(h) @ base["embed"].T).astype(jnp.float32)
        return total + jnp.sum(mask * optax.softmax_cross_entropy_with_integer_labels(logits, label)), None

    cut = lambda a: jnp.moveaxis(a.reshape(BATCH, 4, SEQ // 4, *a.shape[2:]), 1, 0)
    parts = (cut(x), cut(batch["labels"]), cut(batch["mask"]))
    total, _ = jax.lax.scan(jax.checkpoint(chunk), jnp.float32(0), parts)
    return total / jnp.maximum(batch["mask"].sum(), 1)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows, whole = NamedSharding(mesh, P("fsdp")), NamedSharding(mesh, P())
    keep = lambda x: jax.lax.with_sharding_constraint(x, rows)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-4))
    base = base_shapes()
    base_sh = jax.tree_util.tree_map_with_path(lambda p, x: NamedSharding(mesh, base_spec(p, x)), base)
    adapters = jax.eval_shape(init_adapters, jax.random.key(0))

    def step(adapters, opt_state, base, batch):
        loss, grads = jax.value_and_grad(sft_loss)(adapters, base, batch, keep)
        updates, opt_state = tx.update(grads, opt_state, adapters)
        return optax.apply_updates(adapters, updates), opt_state, loss

    fn = jax.jit(step, in_shardings=(whole, whole, base_sh, rows), out_shardings=whole, donate_argnums=(0, 1))
    ids = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32)
    batch = {"tokens": ids, "labels": ids, "mask": jax.ShapeDtypeStruct((BATCH, SEQ), jnp.float32)}
    return fn, (adapters, jax.eval_shape(tx.init, adapters), base, batch)
