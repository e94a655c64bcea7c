# mypy: ignore-errors
"""Fixed."""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Layout:
    tokens: P = P("data", None)
    residual: P = P("data", "model", None)
    block_input: P = P("data", None, None)
    heads: P = P("data", None, "model", None)
    hidden: P = P("data", None, "model")
    logits: P = P("data", None, "model")


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 8192
    d: int = 512
    heads: int = 8
    layers: int = 24
    seq: int = 512
    batch: int = 32
    layout: Layout = Layout()


WEIGHTS = {  # (layer,) in, out
    "qkv": P(None, "data", "model"),
    "out": P(None, "model", "data"),
    "up": P(None, "data", "model"),
    "down": P(None, "model", "data"),
    "scale": P(None, None),
    "embed": P("model", None),
}


class Layer(eqx.Module):
    qkv: jax.Array
    out: jax.Array
    up: jax.Array
    down: jax.Array
    scale: jax.Array

    def __init__(self, cfg, key):
        k = jax.random.split(key, 4)
        n = lambda k, *s: jax.random.normal(k, s, jnp.float32) * s[0] ** -0.5
        self.qkv, self.out = n(k[0], cfg.d, 3 * cfg.d), n(k[1], cfg.d, cfg.d)
        self.up, self.down = n(k[2], cfg.d, 4 * cfg.d), n(k[3], 4 * cfg.d, cfg.d)
        self.scale = jnp.ones((cfg.d,))

    def __call__(self, x, cfg, put):
        lay, bf = cfg.layout, jnp.bfloat16
        h = put(rms(x) * self.scale.astype(bf), lay.block_input)
        q, k, v = jnp.split(h @ self.qkv.astype(bf), 3, axis=-1)
        q, k, v = (put(a.reshape(*a.shape[:2], cfg.heads, -1), lay.heads) for a in (q, k, v))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (cfg.d // cfg.heads) ** -0.5
        s = jnp.where(jnp.tri(cfg.seq, dtype=bool), s, -1e9)
        o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v).reshape(x.shape)
        x = put(x + o @ self.out.astype(bf), lay.residual)
        h = put(rms(x), lay.block_input)
        return x + put(jax.nn.gelu(h @ self.up.astype(bf)), lay.hidden) @ self.down.astype(bf)


class LM(eqx.Module):
    embed: jax.Array
    layers: Layer  # stacked

    def __init__(self, cfg, key):
        self.embed = jax.random.normal(key, (cfg.vocab, cfg.d)) * 0.02
        self.layers = eqx.filter_vmap(lambda k: Layer(cfg, k))(jax.random.split(key, cfg.layers))


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def make_fixed(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))

    def put(x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    def loss_fn(model, ids, targets):
        @jax.checkpoint
        def body(x, layer):
            x = layer(x, cfg, put)
            return put(x, cfg.layout.residual), None

        x = put(model.embed.astype(jnp.bfloat16)[ids], cfg.layout.residual)
        x, _ = jax.lax.scan(body, x, model.layers)
        logits = put(rms(x) @ model.embed.T.astype(jnp.bfloat16), cfg.layout.logits)
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), targets).mean()

    def train(model, ids, targets):
        loss, grads = jax.value_and_grad(loss_fn)(model, ids, targets)
        return jax.tree.map(lambda p, g: p - 0.1 * jnp.sign(g), model, grads), loss

    model = eqx.filter_eval_shape(LM, cfg, jax.random.key(0))
    shardings = jax.tree_util.tree_map_with_path(lambda p, _: NamedSharding(mesh, WEIGHTS[p[-1].name]), model)
    tokens = NamedSharding(mesh, cfg.layout.tokens)
    ids = jax.ShapeDtypeStruct((cfg.batch, cfg.seq), jnp.int32)
    fn = jax.jit(train, in_shardings=(shardings, tokens, tokens), out_shardings=(shardings, None), donate_argnums=0)
    return fn, (model, ids, ids)
