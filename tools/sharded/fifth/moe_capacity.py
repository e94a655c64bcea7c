# mypy: ignore-errors
"""Fault: dropped. The capacity is odd, so the helper leaves the data axis out of the constraint on
the tokens of the experts and every data shard computes all slots of its experts."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass
class MoeConfig:
    d_model: int = 512
    d_ff: int = 4096
    experts: int = 8
    layers: int = 2
    batch: int = 8
    seq: int = 768
    factor: float = 1.25


def constrain(mesh, x, *axes):
    """Constrain x, leaving out axes that do not divide their dimension."""
    keep = [a if a is None or x.shape[i] % mesh.shape[a] == 0 else None for i, a in enumerate(axes)]  # FAULT
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*keep)))


def capacity(cfg, tokens):
    return int(cfg.factor * tokens / cfg.experts) + 1  # FAULT


def capacity_rounded(cfg, tokens):
    c = int(cfg.factor * tokens / cfg.experts)
    return -(-c // 128) * 128


class MoeModel:
    def __init__(self, cfg, mesh, capacity):
        self.cfg, self.mesh = cfg, mesh
        self.slots = capacity(cfg, cfg.batch * cfg.seq)

    def params(self):
        c = self.cfg

        def arr(shape, *axes):
            return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(self.mesh, P(*axes)))

        return [
            {
                "router": arr((c.d_model, c.experts)),
                "wi": arr((c.experts, c.d_model, c.d_ff), "expert", None, "data"),
                "wo": arr((c.experts, c.d_ff, c.d_model), "expert", "data", None),
            }
            for _ in range(c.layers)
        ]

    def route(self, p, x):
        probs = jax.nn.softmax((x @ p["router"]).astype(jnp.float32))
        gate, expert = jnp.max(probs, -1), jnp.argmax(probs, -1)
        onehot = jax.nn.one_hot(expert, self.cfg.experts, dtype=jnp.int32)
        slot = jnp.sum(jnp.cumsum(onehot, axis=0) * onehot, -1) - 1
        dispatch = onehot.astype(x.dtype)[:, :, None] * jax.nn.one_hot(slot, self.slots, dtype=x.dtype)[:, None, :]
        dispatch = constrain(self.mesh, dispatch, "data", "expert", None)
        return dispatch, gate.astype(x.dtype)

    def experts(self, p, xs):
        wi = constrain(self.mesh, p["wi"], "expert", None, None)
        wo = constrain(self.mesh, p["wo"], "expert", None, None)
        h = jnp.einsum("ecd,edf->ecf", xs, wi)
        h = jax.nn.gelu(h)
        return jnp.einsum("ecf,efd->ecd", h, wo)

    def layer(self, p, x):
        dispatch, gate = jax.checkpoint(self.route)(p, x)
        xs = jnp.einsum("tec,td->ecd", dispatch, x)
        xs = constrain(self.mesh, xs, "expert", "data", None)  # FAULT
        ys = self.experts(p, xs)
        ys = constrain(self.mesh, ys, "expert", "data", None)  # FAULT
        y = jnp.einsum("tec,ecd->td", dispatch, ys)
        return x + constrain(self.mesh, y * gate[:, None], "data", None)

    def loss(self, params, x, target):
        x = x.reshape(-1, self.cfg.d_model)
        for p in params:
            x = self.layer(p, x)
        return jnp.mean(jnp.square(x - target.reshape(x.shape)).astype(jnp.float32))

    def step(self, params, x, target):
        loss, grads = jax.value_and_grad(self.loss)(params, x, target)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


def build(devices, capacity):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "expert"))
    cfg = MoeConfig()
    model = MoeModel(cfg, mesh, capacity)
    params = model.params()
    x = jax.ShapeDtypeStruct((cfg.batch, cfg.seq, cfg.d_model), jnp.bfloat16, sharding=NamedSharding(mesh, P("data")))
    same = jax.tree.map(lambda p: p.sharding, params)
    return jax.jit(model.step, donate_argnums=0, out_shardings=(same, None)), (params, x, x)


def make_faulty(devices):
    return build(devices, capacity)


def make_fixed(devices):
    return build(devices, capacity_rounded)
