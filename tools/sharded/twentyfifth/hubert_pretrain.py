# mypy: ignore-errors
"""Fault: optimizer. The rule table is matched with re.match, which is anchored at the start of the path: parameters
are found, but the moments, whose paths begin with the optimizer's own "1/0/mu/", fall through to P() and lie whole.

Masked-unit pretraining of a HuBERT-like speech encoder: log-mel frames in, cluster ids of the masked frames out.
"""
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 8
    dim: int = 768
    hidden: int = 3072
    heads: int = 12
    mels: int = 80
    units: int = 512
    frames: int = 384
    batch: int = 16
    peak_lr: float = 5e-4


# path -> spec; layers are stacked along the first dimension
RULES = (
    (r"encoder/(qkv|up)/kernel", P(None, "fsdp", None)),
    (r"encoder/(out|down)/kernel", P(None, None, "fsdp")),
    (r"frontend/kernel", P(None, "fsdp")),
    (r"head/kernel", P("fsdp", None)),
)


def path_name(path):
    parts = []
    for entry in path:
        for attribute in ("key", "name", "idx"):
            if hasattr(entry, attribute):
                parts.append(str(getattr(entry, attribute)))
                break
    return "/".join(parts)


def spec_for(path, leaf):
    name = path_name(path)
    for pattern, spec in RULES:
        if re.match(pattern, name):  # FAULT
            return spec
    return P()  # scales, biases, counters


def shard_tree(mesh, tree):
    return jax.tree_util.tree_map_with_path(lambda p, x: NamedSharding(mesh, spec_for(p, x)), tree)


def init(key, cfg):
    keys = iter(jax.random.split(key, 8))
    n, d, f = cfg.layers, cfg.dim, cfg.hidden
    dense = lambda *shape: {"kernel": jax.random.normal(next(keys), shape) * shape[-2] ** -0.5}
    return {
        "frontend": dense(cfg.mels, d),
        "encoder": {
            "norm1": jnp.ones((n, d)),
            "norm2": jnp.ones((n, d)),
            "qkv": dense(n, d, 3 * d),
            "out": dense(n, d, d),
            "up": dense(n, d, f),
            "down": dense(n, f, d),
        },
        "mask_vector": jnp.zeros((d,)),
        "head": dense(d, cfg.units),
    }


def rms(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def block(x, p, cfg):
    b, t, d = x.shape
    q, k, v = jnp.split(rms(x, p["norm1"]) @ p["qkv"]["kernel"], 3, axis=-1)
    heads = lambda a: a.reshape(b, t, cfg.heads, d // cfg.heads)
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads(q), heads(k)) * (d // cfg.heads) ** -0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), heads(v)).reshape(b, t, d)
    x = x + mixed @ p["out"]["kernel"]
    return x + jax.nn.gelu(rms(x, p["norm2"]) @ p["up"]["kernel"]) @ p["down"]["kernel"]


def make_faulty(devices):
    cfg = Config()
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("data", "fsdp"))
    rows = NamedSharding(mesh, P(("data", "fsdp")))
    schedule = optax.warmup_cosine_decay_schedule(0.0, cfg.peak_lr, 1000, 100_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))

    def loss_fn(params, batch):
        x = batch["mels"] @ params["frontend"]["kernel"]
        x = jnp.where(batch["mask"][..., None], params["mask_vector"], x)

        @jax.checkpoint
        def body(x, layer):
            x = jax.lax.with_sharding_constraint(x, rows)
            return block(x, layer, cfg), None

        x, _ = jax.lax.scan(body, x, params["encoder"])
        nll = optax.softmax_cross_entropy_with_integer_labels(x @ params["head"]["kernel"], batch["units"])
        return jnp.sum(nll * batch["mask"]) / jnp.maximum(batch["mask"].sum(), 1)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = jax.eval_shape(lambda k: init(k, cfg), jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    param_sh = shard_tree(mesh, params)
    opt_sh = shard_tree(mesh, opt_state)  # FAULT

    step = jax.jit(train_step, out_shardings=(param_sh, opt_sh, NamedSharding(mesh, P())), donate_argnums=(0, 1))
    put = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    shape = (cfg.batch, cfg.frames)
    batch = {
        "mels": jax.ShapeDtypeStruct((*shape, cfg.mels), jnp.float32, sharding=rows),
        "mask": jax.ShapeDtypeStruct(shape, jnp.bool_, sharding=rows),
        "units": jax.ShapeDtypeStruct(shape, jnp.int32, sharding=rows),
    }
    return step, (jax.tree.map(put, params, param_sh), jax.tree.map(put, opt_state, opt_sh), batch)
