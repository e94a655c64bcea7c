# mypy: ignore-errors
"""Fault: optimizer. The second moments have an empty spec in the table of optimizer state rules: they are whole on every
chip, where parameters and first moments are split over `fsdp`."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, HEADS, DEPTH, TOKENS, PATCH = 1024, 8, 2, 256, 16

PARAM_RULES = (
    (r"(qkv|up|modulation)/kernel$", P("fsdp", None)),
    (r"(proj|down)/kernel$", P("fsdp", None)),
)
STATE_RULES = (
    (r"^mu/.*kernel$", P("fsdp", None)),
    (r"^nu/.*kernel$", P()),  # FAULT
)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(DIM, 3 * DIM, use_bias=False, rngs=rngs)
        self.proj = nnx.Linear(DIM, DIM, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(DIM, 4 * DIM, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(4 * DIM, DIM, use_bias=False, rngs=rngs)
        self.modulation = nnx.Linear(DIM, 2 * DIM, use_bias=False, rngs=rngs)

    def __call__(self, x, cond):
        shift, scale = jnp.split(self.modulation(nnx.silu(cond))[:, None], 2, axis=-1)
        y = norm(x) * (1 + scale) + shift
        b, t, _ = y.shape
        q, k, v = jnp.split(self.qkv(y).reshape(b, t, HEADS, -1), 3, axis=-1)
        x = x + self.proj(jax.nn.dot_product_attention(q, k, v).reshape(b, t, DIM))
        return x + self.down(nnx.gelu(self.up(norm(x))))


class DiT(nnx.Module):
    def __init__(self, rngs):
        self.inp = nnx.Linear(PATCH, DIM, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(DEPTH)])
        self.out = nnx.Linear(DIM, PATCH, rngs=rngs)

    def __call__(self, x, t):
        freq = jnp.exp(jnp.linspace(0.0, 6.0, DIM // 2))
        cond = jnp.concatenate([jnp.sin(t[:, None] * freq), jnp.cos(t[:, None] * freq)], axis=-1)
        h = self.inp(x)
        for block in self.blocks:
            h = nnx.remat(Block.__call__)(block, h, cond)
        return self.out(norm(h))


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def flat_params(state):
    return {"/".join(map(str, path)): leaf.get_value() for path, leaf in nnx.to_flat_state(state)}


def spec_for(name, rules):
    return next((spec for pattern, spec in rules if re.search(pattern, name)), P())


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    graph, abstract = nnx.split(nnx.eval_shape(lambda: DiT(nnx.Rngs(0))))
    names = [path for path, _ in nnx.to_flat_state(abstract)]

    def place(flat, rules):
        return {
            n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec_for(n, rules)))
            for n, a in flat.items()
        }

    params = place(flat_params(abstract), PARAM_RULES)
    opt = place({f"mu/{n}": a for n, a in params.items()} | {f"nu/{n}": a for n, a in params.items()}, STATE_RULES)

    def loss_fn(params, x, t, noise):
        leaves = [(p, nnx.Param(params["/".join(map(str, p))])) for p in names]
        model = nnx.merge(graph, nnx.from_flat_state(leaves))
        noisy = (1 - t[:, None, None]) * x + t[:, None, None] * noise
        return jnp.mean((model(noisy, t) - (noise - x)) ** 2)

    def step(params, opt, x, t, noise):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, t, noise)
        new_params, new_opt = {}, {}
        for n, g in grads.items():
            mu = new_opt[f"mu/{n}"] = 0.9 * opt[f"mu/{n}"] + 0.1 * g
            nu = new_opt[f"nu/{n}"] = 0.99 * opt[f"nu/{n}"] + 0.01 * g * g
            new_params[n] = params[n] - 1e-4 * mu * jax.lax.rsqrt(nu + 1e-8)
        return new_params, new_opt, loss

    rows = NamedSharding(mesh, P("fsdp"))
    x = jax.ShapeDtypeStruct((32, TOKENS, PATCH), jnp.float32, sharding=rows)
    t = jax.ShapeDtypeStruct((32,), jnp.float32, sharding=rows)
    shardings = jax.tree.map(lambda a: a.sharding, (params, opt))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*shardings, NamedSharding(mesh, P())))
    return fn, (params, opt, x, t, x)
