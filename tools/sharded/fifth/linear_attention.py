# mypy: ignore-errors
"""Fault: stack. The recurrence over chunks runs in a shard_map whose specs name the batch only, so the
outputs and the states stacked for the backward pass are whole along the model axis."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    d_model: int = 1024
    heads: int = 8
    key: int = 128
    value: int = 128
    layers: int = 2
    chunk: int = 64
    batch: int = 8
    seq: int = 2048


def recurrence(q, k, v, decay):
    """(chunks, batch, chunk, heads, dim) each; the usual chunked form."""
    _, b, t, h, dk = q.shape
    mask = jnp.tril(jnp.ones((t, t), bool))

    def chunk(state, inp):
        q, k, v, g = inp
        total = jnp.cumsum(g, axis=1)
        qd = q * jnp.exp(total).astype(q.dtype)
        kd = k * jnp.exp(-total).astype(k.dtype)
        inter = jnp.einsum("bthk,bhkv->bthv", qd, state.astype(q.dtype))
        a = jnp.where(mask, jnp.einsum("bthk,bshk->bhts", qd, kd), 0)
        intra = jnp.einsum("bhts,bshv->bthv", a, v)
        last = total[:, -1]
        kv = jnp.einsum("bthk,bthv->bhkv", k * jnp.exp(last[:, None] - total).astype(k.dtype), v)
        return state * jnp.exp(last)[..., None] + kv.astype(jnp.float32), inter + intra

    state = jnp.zeros((b, h, dk, v.shape[-1]), jnp.float32)
    return jax.lax.scan(jax.checkpoint(chunk), state, (q, k, v, decay))[1]


@dataclasses.dataclass
class GatedLinearAttention:
    cfg: Config
    mesh: Mesh
    chunk_spec: P

    def shard(self, x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def heads(self, x, w):
        b, t, _ = x.shape
        y = self.shard((x @ w).reshape(b, t, self.cfg.heads, -1), P("data", None, "model", None))
        y = y.reshape(b, t // self.cfg.chunk, self.cfg.chunk, self.cfg.heads, -1)
        return jnp.moveaxis(y, 1, 0)

    def __call__(self, p, x):
        q, k, v = (self.heads(x, p[n]) for n in ("q", "k", "v"))
        decay = jax.nn.log_sigmoid(self.heads(x, p["decay"]).astype(jnp.float32)) / 16
        spec = self.chunk_spec
        local = jax.shard_map(recurrence, mesh=self.mesh, in_specs=(spec,) * 4, out_specs=spec, check_vma=False)  # FAULT
        y = jnp.moveaxis(local(q, k, v, decay), 0, 1).reshape(*x.shape[:2], -1)  # FAULT
        return self.shard(y @ p["out"], P("data", None, None))


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def loss_fn(params, x, target, mixer):
    @jax.checkpoint
    def layer(x, p):
        x = x + mixer(p, rms(x))
        return x + jax.nn.silu(rms(x) @ p["up"]) @ p["down"], None

    x, _ = jax.lax.scan(layer, x, params)
    return jnp.mean(jnp.square((rms(x) - target).astype(jnp.float32)))


def build(devices, chunk_spec):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    mixer = GatedLinearAttention(cfg, mesh, chunk_spec)
    d, inner = cfg.d_model, cfg.heads * cfg.key
    table = {n: (d, inner, P(None, None, "model")) for n in ("q", "k", "v", "decay")}
    table |= {"out": (inner, d, P(None, "model", None))}
    table |= {"up": (d, 2 * d, P(None, None, "model")), "down": (2 * d, d, P(None, "model", None))}
    params = {
        n: jax.ShapeDtypeStruct((cfg.layers, i, o), jnp.bfloat16, sharding=NamedSharding(mesh, s))
        for n, (i, o, s) in table.items()
    }
    x = jax.ShapeDtypeStruct((cfg.batch, cfg.seq, d), jnp.bfloat16, sharding=NamedSharding(mesh, P("data")))

    def step(params, x, target):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, target, mixer)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    same = jax.tree.map(lambda p: p.sharding, params)
    return jax.jit(step, donate_argnums=0, out_shardings=(same, None)), (params, x, x)


def make_faulty(devices):
    return build(devices, P(None, "data"))  # FAULT


def make_fixed(devices):
    return build(devices, P(None, "data", None, "model"))
