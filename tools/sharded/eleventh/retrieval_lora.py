# mypy: ignore-errors
"""Clean. Contrastive fine-tuning of a text encoder for retrieval with LoRA: the frozen base weights
are divided over the tensor-parallel axis, the small adapters and their moments are copies."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, D, HEADS, LAYERS, RANK = 30720, 768, 12, 4, 8
PAIRS, TOKENS = 32, 128
TEMPERATURE = 0.05

BASE_RULES = (
    (r"embed$", P("tp", None)),
    (r"(qkv|up)$", P(None, "tp")),
    (r"(out|down)$", P("tp", None)),
    (r".*", P()),
)


def base_shapes():
    layer = {"qkv": (D, 3 * D), "out": (D, D), "up": (D, 4 * D), "down": (4 * D, D)}
    return {"embed": (VOCAB, D)} | {f"layer{i}/{k}": s for i in range(LAYERS) for k, s in layer.items()}


def lora_shapes():
    """Adapters of the attention projections only."""
    out = {}
    for i in range(LAYERS):
        for name, width in (("qkv", 3 * D), ("out", D)):
            out[f"layer{i}/{name}"] = {"a": (D, RANK), "b": (RANK, width)}
    return out


def spec_of(name):
    return next(spec for pattern, spec in BASE_RULES if re.search(pattern, name))


def norm(x):
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt(jnp.square(f).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


class Encoder:
    def __init__(self, mesh):
        self.mesh = mesh

    def put(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))

    def project(self, base, lora, name, x):
        y = x @ base[name]
        if name in lora:
            y = y + (x @ lora[name]["a"].astype(x.dtype)) @ lora[name]["b"].astype(x.dtype)
        return y

    def layer(self, i, base, lora, x, mask):
        b, t, _ = x.shape
        # fused weights keep q, k and v of a head together, so that heads divide over tp
        qkv = self.project(base, lora, f"layer{i}/qkv", norm(x)).reshape(b, t, HEADS, 3, D // HEADS)
        qkv = self.put(qkv, "data", None, "tp", None, None)
        q, k, v = (qkv[..., j, :] for j in range(3))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (D // HEADS) ** -0.5
        p = jax.nn.softmax(jnp.where(mask[:, None, None, :], s, -1e9).astype(jnp.float32)).astype(x.dtype)
        o = jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(b, t, D)
        x = self.put(x + self.project(base, lora, f"layer{i}/out", o), "data", None, None)
        h = jax.nn.gelu(self.put(norm(x) @ base[f"layer{i}/up"], "data", None, "tp"))
        return self.put(x + h @ base[f"layer{i}/down"], "data", None, None)

    def __call__(self, base, lora, ids):
        mask = ids > 0
        x = self.put(base["embed"][ids], "data", None, None)
        for i in range(LAYERS):
            x = jax.checkpoint(self.layer, static_argnums=0)(i, base, lora, x, mask)
        pooled = (x * mask[..., None]).sum(1) / jnp.maximum(mask.sum(1), 1)[:, None]
        pooled = pooled.astype(jnp.float32)
        return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "tp"))
    encoder = Encoder(mesh)
    tx = optax.adamw(1e-4)

    def loss_fn(lora, base, queries, passages):
        q, p = encoder(base, lora, queries), encoder(base, lora, passages)
        scores = q @ p.T / TEMPERATURE  # in-batch negatives of all devices
        return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(PAIRS)).mean()

    def step(lora, opt_state, base, queries, passages):
        loss, grads = jax.value_and_grad(loss_fn)(lora, base, queries, passages)
        updates, opt_state = tx.update(grads, opt_state, lora)
        return optax.apply_updates(lora, updates), opt_state, loss

    is_shape = lambda s: isinstance(s, tuple)
    base = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16) for k, s in base_shapes().items()}
    lora = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), lora_shapes(), is_leaf=is_shape)
    base_sh = {k: NamedSharding(mesh, spec_of(k)) for k in base}
    small, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    fn = jax.jit(step, in_shardings=(small, small, base_sh, rows, rows), out_shardings=small, donate_argnums=(0, 1))
    ids = jax.ShapeDtypeStruct((PAIRS, TOKENS), jnp.int32)
    return fn, (lora, jax.eval_shape(tx.init, lora), base, ids, ids)
