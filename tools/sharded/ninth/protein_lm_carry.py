# mypy: ignore-errors
"""Fault: stack. The residual stream carried through the loop over layers is whole along "model"; the backward pass stacks one such carry per layer, four times what a sequence-split stream would need."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Layout:
    residual: P = P("data", None, None)  # FAULT
    hidden: P = P("data", None, "model")
    heads: P = P("data", None, "model", None)
    column: P = P(None, None, "model")
    row: P = P(None, "model", None)
    tokens: P = P("data", None)


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 12
    width: int = 512
    heads: int = 8
    hidden: int = 2048
    length: int = 1024
    batch: int = 32
    alphabet: int = 32


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def build(cfg, layout, mesh):
    def at(x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    def block(x, w):
        h = norm(x)
        split = (*h.shape[:2], cfg.heads, -1)
        q, k, v = (at((h @ w[n]).reshape(split), layout.heads) for n in ("q", "k", "v"))
        kv = jnp.einsum("bshd,bshe->bhde", jax.nn.softmax(k, axis=1), v)
        mixed = jnp.einsum("bshd,bhde->bshe", jax.nn.softmax(q, axis=-1), kv)
        x = x + at(mixed.reshape(h.shape) @ w["o"], layout.residual)
        hidden = at(jax.nn.gelu(norm(x) @ w["up"]), layout.hidden)
        return at(x + hidden @ w["down"], layout.residual), None

    def loss_fn(params, tokens, masked):
        x = at(params["embed"][masked], layout.residual)
        x, _ = jax.lax.scan(jax.checkpoint(block), x, params["layers"])
        logits = (norm(x) @ params["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()

    def step(params, tokens, masked):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, masked)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    return step


def make_faulty(devices):
    cfg, layout = Config(), Layout()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def struct(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    square = (cfg.layers, cfg.width, cfg.width)
    layers = {name: struct(square, layout.column) for name in ("q", "k", "v")}
    layers["o"] = struct(square, layout.row)
    layers["up"] = struct((cfg.layers, cfg.width, cfg.hidden), layout.column)
    layers["down"] = struct((cfg.layers, cfg.hidden, cfg.width), layout.row)
    params = {"embed": struct((cfg.alphabet, cfg.width), P()), "layers": layers}
    tokens = struct((cfg.batch, cfg.length), layout.tokens, jnp.int32)
    out = (jax.tree.map(lambda p: p.sharding, params), NamedSharding(mesh, P()))
    step = jax.jit(build(cfg, layout, mesh), donate_argnums=0, out_shardings=out)
    return step, (params, tokens, tokens)
