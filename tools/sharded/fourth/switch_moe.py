# mypy: ignore-errors
"""Fault: replicated. The dispatch and combine masks of the MoE layer are constrained on the expert axis only,
so the group dimension (split over data everywhere else) is whole on every device."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class MoEConfig:
    groups: int = 16
    group_len: int = 2048
    d_model: int = 512
    d_ff: int = 1024
    experts: int = 8
    capacity: int = 512
    layers: int = 2
    mask_spec: P = P("data", None, "expert", None)


def rms_norm(x, scale):
    var = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(var + 1e-6)).astype(x.dtype) * scale


def route(cfg, x, w_router):
    """Top-1 routing with a capacity; returns dispatch and combine masks [g, s, e, c]."""
    logits = jnp.einsum("gsd,de->gse", x, w_router).astype(jnp.float32)
    probs = jax.nn.softmax(logits, axis=-1)
    choice = jnp.argmax(probs, axis=-1)
    onehot = jax.nn.one_hot(choice, cfg.experts, dtype=jnp.float32)
    position = (jnp.cumsum(onehot, axis=1) - 1.0) * onehot
    slot = jnp.sum(position, axis=-1).astype(jnp.int32)
    slot_onehot = jax.nn.one_hot(slot, cfg.capacity, dtype=x.dtype)
    gate = jnp.sum(probs * onehot, axis=-1).astype(x.dtype)
    dispatch = onehot.astype(x.dtype)[..., None] * slot_onehot[:, :, None, :]
    dispatch = jax.lax.with_sharding_constraint(dispatch, cfg.mask_spec)  # FAULT
    combine = dispatch * gate[:, :, None, None]
    combine = jax.lax.with_sharding_constraint(combine, cfg.mask_spec)  # FAULT
    balance = jnp.mean(onehot, axis=1) * jnp.mean(probs, axis=1)
    return dispatch, combine, cfg.experts * jnp.mean(jnp.sum(balance, axis=-1))


def moe_layer(cfg, p, x):
    h = rms_norm(x, p["norm"])
    dispatch, combine, aux = route(cfg, h, p["router"])
    expert_in = jnp.einsum("gsec,gsd->gecd", dispatch, h)
    expert_in = jax.lax.with_sharding_constraint(expert_in, P("data", "expert", None, None))
    mid = jax.nn.gelu(jnp.einsum("gecd,edf->gecf", expert_in, p["w_in"]))
    expert_out = jnp.einsum("gecf,efd->gecd", mid, p["w_out"])
    expert_out = jax.lax.with_sharding_constraint(expert_out, P("data", "expert", None, None))
    y = jnp.einsum("gsec,gecd->gsd", combine, expert_out)
    return jax.lax.with_sharding_constraint(x + y, P("data", None, None)), aux


def loss_fn(cfg, params, x, target):
    aux_total = 0.0
    for p in params:
        x, aux = moe_layer(cfg, p, x)
        aux_total += aux
    err = jnp.mean(jnp.square((x - target).astype(jnp.float32)))
    return err + 0.01 * aux_total


def train_step(cfg, mesh, params, x, target):
    with mesh:
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, cfg))(params, x, target)
    params = jax.tree.map(lambda p, g: p - 1e-3 * g.astype(p.dtype), params, grads)
    return params, loss


def param_structs(cfg, mesh):
    def s(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))

    e, d, f = cfg.experts, cfg.d_model, cfg.d_ff
    layer = {
        "norm": s((d,)),
        "router": s((d, e)),
        "w_in": s((e, d, f), "expert", None, None),
        "w_out": s((e, f, d), "expert", None, None),
    }
    return [dict(layer) for _ in range(cfg.layers)]


def build(cfg, devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "expert"))
    act = jax.ShapeDtypeStruct(
        (cfg.groups, cfg.group_len, cfg.d_model), jnp.bfloat16, sharding=NamedSharding(mesh, P("data", None, None))
    )
    step = jax.jit(functools.partial(train_step, cfg, mesh), donate_argnums=(0,))
    return step, (param_structs(cfg, mesh), act, act)


def make_faulty(devices):
    cfg = MoEConfig(mask_spec=P(None, None, "expert", None))  # FAULT
    return build(cfg, devices)


def make_fixed(devices):
    return build(MoEConfig(), devices)
