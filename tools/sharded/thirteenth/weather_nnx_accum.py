# mypy: ignore-errors
"""Fault: optimizer. The helper divides the Adam moments as the weights, but not the gradient accumulator of MultiSteps, which is whole on each chip."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass
class ForecastConfig:
    lat: int = 64
    lon: int = 128
    channels: int = 69
    patch: int = 4
    dim: int = 768
    heads: int = 12
    depth: int = 6
    window: int = 64
    batch: int = 8
    accumulate: int = 4


class WindowBlock(nnx.Module):
    """Attention within windows of neighbouring patches; odd layers roll the sequence by half a window."""

    def __init__(self, cfg, shift, rngs):
        kw = dict(use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.norm1, self.norm2 = nnx.LayerNorm(cfg.dim, rngs=rngs), nnx.LayerNorm(cfg.dim, rngs=rngs)
        self.qkv = nnx.Linear(cfg.dim, 3 * cfg.dim, **kw)
        self.proj = nnx.Linear(cfg.dim, cfg.dim, **kw)
        self.up = nnx.Linear(cfg.dim, 4 * cfg.dim, **kw)
        self.down = nnx.Linear(4 * cfg.dim, cfg.dim, **kw)
        self.heads, self.window, self.shift = cfg.heads, cfg.window, shift

    def __call__(self, x):
        b, n, d = x.shape
        y = jnp.roll(self.norm1(x), self.shift, 1)
        q, k, v = jnp.split(self.qkv(y).reshape(b, n // self.window, self.window, 3 * self.heads, -1), 3, axis=3)
        s = jnp.einsum("bwqhd,bwkhd->bwhqk", q, k).astype(jnp.float32) * (d // self.heads) ** -0.5
        y = jnp.einsum("bwhqk,bwkhd->bwqhd", jax.nn.softmax(s).astype(v.dtype), v).reshape(b, n, d)
        x = x + jnp.roll(self.proj(y), -self.shift, 1)
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class Forecaster(nnx.Module):
    def __init__(self, cfg, rngs):
        pixels = cfg.patch**2 * cfg.channels
        self.encode = nnx.Linear(pixels, cfg.dim, rngs=rngs)
        self.blocks = nnx.List([WindowBlock(cfg, (i % 2) * cfg.window // 2, rngs) for i in range(cfg.depth)])
        self.decode = nnx.Linear(cfg.dim, pixels, rngs=rngs)
        self.patch = cfg.patch

    def __call__(self, x):
        b, h, w, c = x.shape
        p = self.patch
        tokens = x.reshape(b, h // p, p, w // p, p, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, p * p * c)
        y = self.encode(tokens).astype(jnp.bfloat16)
        for block in self.blocks:
            y = nnx.remat(lambda m, a: m(a))(block, y)
        y = self.decode(y).reshape(b, h // p, w // p, p, p, c)
        return x + y.transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


def weight_spec(path, leaf, n):
    name = jax.tree_util.keystr(path)
    if "kernel" in name and leaf.ndim == 2:
        return P("fsdp", None) if leaf.shape[0] % n == 0 else P(None, "fsdp")
    return P()


def state_spec(path, leaf, n):
    """Whatever mirrors the weights is laid out as they are; counters and flags are on every chip."""
    if any(key in jax.tree_util.keystr(path) for key in (".mu", ".nu")):  # FAULT
        return weight_spec(path, leaf, n)
    return P()


def make_faulty(devices):
    cfg = ForecastConfig()
    mesh = Mesh(np.array(devices), ("fsdp",))
    graph, params = nnx.split(nnx.eval_shape(lambda: Forecaster(cfg, nnx.Rngs(0))))
    tx = optax.MultiSteps(optax.adamw(2e-4, weight_decay=0.05), cfg.accumulate)
    opt_state = jax.eval_shape(tx.init, params)
    pick = lambda rule: lambda path, leaf: NamedSharding(mesh, rule(path, leaf, mesh.size))
    p_sh = jax.tree_util.tree_map_with_path(pick(weight_spec), params)
    o_sh = jax.tree_util.tree_map_with_path(pick(state_spec), opt_state)  # FAULT
    data = NamedSharding(mesh, P("fsdp"))

    def micro_step(params, opt_state, now, later):
        def loss_fn(p):
            weight = jnp.cos(jnp.linspace(-1.5, 1.5, cfg.lat))[:, None, None]
            return jnp.mean(weight * jnp.square(nnx.merge(graph, p)(now) - later))

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    step = jax.jit(micro_step, in_shardings=(p_sh, o_sh, data, data), out_shardings=(p_sh, o_sh, None), donate_argnums=(0, 1))
    fields = jax.ShapeDtypeStruct((cfg.batch, cfg.lat, cfg.lon, cfg.channels), jnp.float32)
    return step, (params, opt_state, fields, fields)
