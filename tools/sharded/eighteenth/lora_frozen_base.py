# mypy: ignore-errors
"""Clean. LoRA fine-tuning: the frozen base weights are stored split over all four chips and gathered layer
by layer (again in the backward pass), the small adapters and their Adam state are whole by choice.

The base is never differentiated: only the adapter tree goes through jax.grad.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Base:
    layers: int = 12
    dim: int = 1024
    ffn: int = 4096
    heads: int = 8
    vocab: int = 16_384


@dataclasses.dataclass(frozen=True)
class Lora:
    rank: int = 16
    alpha: float = 32.0
    targets: tuple = ("wq", "wv", "up", "down")

    @property
    def scale(self):
        return self.alpha / self.rank


BATCH, LENGTH = 8, 512


def base_shapes(cfg):
    n, d, f = cfg.layers, cfg.dim, cfg.ffn
    mats = {"wq": (d, d), "wk": (d, d), "wv": (d, d), "wo": (d, d), "gate": (d, f), "up": (d, f), "down": (f, d)}
    layers = {name: (n, *shape) for name, shape in mats.items()} | {"ln1": (n, d), "ln2": (n, d)}
    return {"embed": (cfg.vocab, d), "layers": layers, "norm": (d,), "head": (d, cfg.vocab)}


def lora_shapes(cfg, lora):
    layers = base_shapes(cfg)["layers"]
    return {
        name: {"a": (cfg.layers, layers[name][1], lora.rank), "b": (cfg.layers, lora.rank, layers[name][2])}
        for name in lora.targets
    }


def rms(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


class Model:
    def __init__(self, cfg, lora, mesh):
        self.cfg, self.lora = cfg, lora
        self.whole = NamedSharding(mesh, P())
        self.rows = NamedSharding(mesh, P("fsdp"))

    def fetch(self, w):
        return jax.lax.with_sharding_constraint(w, self.whole)

    def pin(self, x):
        return jax.lax.with_sharding_constraint(x, self.rows)

    def linear(self, x, name, base, adapters):
        y = x @ self.fetch(base[name])
        if name in adapters:
            a, b = (adapters[name][k].astype(x.dtype) for k in "ab")
            y = y + self.lora.scale * ((x @ a) @ b)
        return y

    def layer(self, x, base, adapters):
        b, t, d = x.shape
        lin = functools.partial(self.linear, base=base, adapters=adapters)
        y = rms(x, base["ln1"])
        q, k, v = (lin(y, n).reshape(b, t, self.cfg.heads, -1) for n in ("wq", "wk", "wv"))
        att = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + lin(att.reshape(b, t, d), "wo")
        y = rms(x, base["ln2"])
        return self.pin(x + lin(jax.nn.silu(lin(y, "gate")) * lin(y, "up"), "down"))

    def loss(self, adapters, base, tokens, weights):
        x = self.pin(self.fetch(base["embed"])[tokens[:, :-1]])

        @jax.checkpoint
        def body(x, ws):
            return self.layer(x, *ws), None

        x, _ = jax.lax.scan(body, x, (base["layers"], adapters))
        x = rms(x, base["norm"])

        @jax.checkpoint
        def head(h):
            return self.pin((h @ self.fetch(base["head"])).astype(jnp.float32))

        logits = head(x)
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        nll = jax.nn.logsumexp(logits, axis=-1) - picked
        return jnp.sum(weights * nll) / jnp.maximum(weights.sum(), 1.0)


def make_clean(devices):
    cfg, lora = Base(), Lora()
    mesh = Mesh(np.array(devices).reshape(4), ("fsdp",))
    model = Model(cfg, lora, mesh)
    tx = optax.chain(optax.clip_by_global_norm(0.3), optax.adamw(2e-4, weight_decay=0.0))
    leaf = {"is_leaf": lambda s: isinstance(s, tuple)}

    def frozen(shape):
        spec = P(*(None,) * (len(shape) - 2), "fsdp") if min(shape[-2:]) >= cfg.dim else P()
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    def small(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=model.whole)

    base = jax.tree.map(frozen, base_shapes(cfg), **leaf)
    adapters = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), lora_shapes(cfg, lora), **leaf)
    opt_state = jax.tree.map(small, jax.eval_shape(tx.init, adapters))
    adapters = jax.tree.map(small, adapters)

    def step(adapters, opt_state, base, tokens, weights):
        loss, grads = jax.value_and_grad(model.loss)(adapters, base, tokens, weights)
        updates, opt_state = tx.update(grads, opt_state, adapters)
        return optax.apply_updates(adapters, updates), opt_state, loss

    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32, sharding=model.rows)
    weights = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.float32, sharding=model.rows)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=model.whole)
    return fn, (adapters, opt_state, base, tokens, weights)
