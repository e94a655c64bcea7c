# mypy: ignore-errors
"""Clean. Fine-tuning of a decoder with tensor and sequence parallelism: the residual stream is divided over the sequence between layers
and gathered for each matrix product, as it must be; remat saves the divided stream only."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How this run is laid out, and its sizes."""
    data: str = "data"
    model: str = "model"
    layers: int = 8
    d: int = 2048
    ff: int = 8192
    heads: int = 16
    vocab: int = 32768
    batch: int = 8
    seq: int = 2048

    def params(self):
        L, D, H = self.layers, self.d, self.heads
        m, z = self.model, self.data
        return {
            "embed": ((self.vocab, D), P(m, z)),
            "wqkv": ((L, D, 3, H, D // H), P(None, z, None, m, None)),
            "wo": ((L, H, D // H, D), P(None, m, None, z)),
            "win": ((L, D, self.ff), P(None, z, m)),
            "wout": ((L, self.ff, D), P(None, m, z)),
            "ln": ((L, 2, D), P()),
        }

    def stream(self):
        return P(self.data, self.model, None)

    def gathered(self):
        return P(self.data, None, None)

    def by_head(self):
        return P(self.data, None, self.model, None)


def make_clean(devices):
    plan = Plan()
    mesh = Mesh(np.array(devices).reshape(4, 4), (plan.data, plan.model))
    at = lambda spec: NamedSharding(mesh, spec)
    pin = lambda x, spec: jax.lax.with_sharding_constraint(x, at(spec))
    opt = optax.sgd(1e-4, momentum=0.9, accumulator_dtype=jnp.bfloat16)

    def norm(x, g):
        y = x.astype(jnp.float32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g

    def attention(q, k, v):
        def rows(args):
            qc, start = args
            s = jnp.einsum("bqhd,bkhd->bhqk", qc, k).astype(jnp.float32) * q.shape[-1] ** -0.5
            mask = start + jnp.arange(qc.shape[1])[:, None] >= jnp.arange(plan.seq)
            return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, s, -1e30)).astype(v.dtype), v)

        cut = q.reshape(q.shape[0], 8, -1, *q.shape[2:]).swapaxes(0, 1)
        out = jax.lax.map(jax.checkpoint(rows), (cut, jnp.arange(8) * (plan.seq // 8)))
        return out.swapaxes(0, 1).reshape(q.shape)

    @jax.checkpoint
    def layer(x, w):
        h = pin(norm(x, w["ln"][0]), plan.gathered())
        q, k, v = jnp.moveaxis(jnp.einsum("bsd,dthk->bsthk", h, w["wqkv"]), 2, 0)
        mixed = attention(*(pin(t, plan.by_head()) for t in (q, k, v)))
        x = x + pin(jnp.einsum("bshk,hkd->bsd", mixed, w["wo"]), plan.stream())
        h = pin(norm(x, w["ln"][1]), plan.gathered())
        h = pin(jax.nn.silu(h @ w["win"]), P(plan.data, None, plan.model))
        return x + pin(h @ w["wout"], plan.stream()), None

    def loss_fn(params, tokens):
        x = pin(params["embed"][tokens[:, :-1]], plan.stream())
        x, _ = jax.lax.scan(layer, x, {k: v for k, v in params.items() if k != "embed"})
        logits = pin(pin(x, plan.gathered()) @ params["embed"].T, P(plan.data, None, plan.model))
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), tokens[:, 1:]).mean()

    def step(params, state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    params = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=at(p)) for k, (s, p) in plan.params().items()}
    state = optax.tree_map_params(opt, lambda _, p: p, jax.eval_shape(opt.init, params), params)
    out = jax.tree.map(lambda x: x.sharding, (params, state))
    tokens = jax.ShapeDtypeStruct((plan.batch, plan.seq + 1), jnp.int32, sharding=at(P(plan.data)))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, at(P()))), (params, state, tokens)
