# mypy: ignore-errors
"""Clean. Flow matching with a transformer on latents: weights, moments and average split over both
axes, between the blocks the tokens split over "model", layers in a scan that rematerialises.
"""

from dataclasses import dataclass, field, fields

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.tree_util import register_dataclass

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Config:
    patch: int = 16
    tokens: int = 1024
    width: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 12
    classes: int = 1000
    batch: int = 32
    dropout: float = 0.1


def weight(*spec):
    return field(metadata={"spec": P(*spec)})


@register_dataclass
@dataclass
class Blocks:
    qkv: jax.Array = weight(None, "data", None, "model", None)
    out: jax.Array = weight(None, "model", None, "data")
    up: jax.Array = weight(None, "data", "model")
    down: jax.Array = weight(None, "model", "data")
    modulation: jax.Array = weight(None, "data", None, "model")


@register_dataclass
@dataclass
class Flow:
    inward: jax.Array = weight(None, "model")
    position: jax.Array = weight("model", "data")
    labels: jax.Array = weight(None, "model")
    time: jax.Array = weight("data", "model")
    blocks: Blocks = field(metadata={"spec": Blocks})
    outward: jax.Array = weight("model", None)


def specs(cls):
    pick = lambda spec: spec if isinstance(spec, P) else specs(spec)
    return cls(**{f.name: pick(f.metadata["spec"]) for f in fields(cls)})


def init(cfg, key):
    keys = iter(jax.random.split(key, 16))
    normal = lambda *shape: 0.02 * jax.random.normal(next(keys), shape)
    n, d, h, f = cfg.layers, cfg.width, cfg.heads, cfg.hidden
    attention = normal(n, d, 3, h, d // h), normal(n, h, d // h, d)
    blocks = Blocks(*attention, normal(n, d, f), normal(n, f, d), jnp.zeros((n, d, 6, d)))
    tables = normal(cfg.tokens, d), normal(cfg.classes + 1, d), normal(d, d)
    return Flow(normal(cfg.patch, d), *tables, blocks, jnp.zeros((d, cfg.patch)))


def norm(x, shift, scale):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)
    return (y * (1 + scale) + shift).astype(x.dtype)


def block(cfg, pin, x, condition, w):
    w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
    six = jnp.einsum("bd,dse->sbe", jax.nn.silu(condition), w.modulation)
    s1, c1, g1, s2, c2, g2 = pin(six, None, "data", None)[:, :, None]
    split, heads = ("data", "model", None), ("data", None, "model", None)
    qkv = jnp.einsum("btd,dshk->sbthk", pin(norm(x, s1, c1), *split), w.qkv)
    q, k, v = pin(qkv, None, *heads)
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k).astype(jnp.float32) * (cfg.width // cfg.heads) ** -0.5
    mixed = jnp.einsum("bhqt,bthk->bqhk", jax.nn.softmax(scores).astype(x.dtype), v)
    x = pin(x + g1 * pin(jnp.einsum("bqhk,hkd->bqd", pin(mixed, *heads), w.out), *split), *split)
    hidden = pin(jax.nn.gelu(pin(norm(x, s2, c2), *split) @ w.up), "data", None, "model")
    return pin(x + g2 * pin(hidden @ w.down, *split), *split)


def velocity(cfg, pin, params, noisy, time, label):
    bf16 = lambda a: a.astype(jnp.bfloat16)
    angle = 1000 * time[:, None] * jnp.exp(-jnp.linspace(0, 9.2, cfg.width // 2))
    wave = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], -1)
    condition = pin(bf16(wave @ params.time + params.labels[label]), "data", None)
    x = pin(bf16(noisy @ params.inward + params.position), "data", "model", None)

    @jax.checkpoint
    def layer(x, w):
        return block(cfg, pin, x, condition, w), None

    x, _ = lax.scan(layer, x, params.blocks)
    return norm(x, 0.0, 0.0).astype(jnp.float32) @ params.outward


def make_clean(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    tx = optax.adamw(2e-4, b2=0.99, weight_decay=0.0)
    at = lambda *axes: NamedSharding(mesh, P(*axes))
    pin = lambda x, *axes: lax.with_sharding_constraint(x, at(*axes))

    def loss_fn(params, key, latents, labels):
        k1, k2, k3 = jax.random.split(key, 3)
        time = jax.nn.sigmoid(jax.random.normal(k1, labels.shape))
        noise = pin(jax.random.normal(k2, latents.shape), "data", "model", None)
        labels = jnp.where(jax.random.bernoulli(k3, cfg.dropout, labels.shape), cfg.classes, labels)
        noisy = time[:, None, None] * latents + (1 - time[:, None, None]) * noise
        return jnp.mean((velocity(cfg, pin, params, noisy, time, labels) - (latents - noise)) ** 2)

    def step(params, average, moments, key, latents, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, key, latents, labels)
        updates, moments = tx.update(grads, moments, params)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, average, 1e-4), moments, loss

    shape = lambda spec, a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=at(*spec))
    shapes, layout = jax.eval_shape(lambda k: init(cfg, k), jax.random.key(0)), specs(Flow)
    params = jax.tree.map(lambda a, s: shape(s, a), shapes, layout)
    moments = optax.tree_map_params(
        tx, lambda a, s: shape(s, a), jax.eval_shape(tx.init, shapes), layout,
        transform_non_params=lambda a: shape((), a),
    )
    key, tokens = shape((), jax.eval_shape(jax.random.key, 0)), (cfg.batch, cfg.tokens, cfg.patch)
    latents = jax.ShapeDtypeStruct(tokens, jnp.float32, sharding=at("data", "model", None))
    labels = jax.ShapeDtypeStruct(tokens[:1], jnp.int32, sharding=at("data"))
    outs = (*jax.tree.map(lambda a: a.sharding, (params, params, moments)), at())
    fn = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=outs)
    return fn, (params, params, moments, key, latents, labels)
