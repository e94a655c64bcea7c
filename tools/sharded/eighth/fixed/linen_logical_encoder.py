# mypy: ignore-errors
"""Fault: dropped. The fused gate and up projection names its last axis "mlp_hidden", for which there is no rule, so
that it is taken as unsharded: the kernel and its two Adam moments are whole on both chips of `model`."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LOGICAL_RULES = (
    ("batch", "data"),
    ("time", None),
    ("embed", None),
    ("mlp", "model"),
    ("heads", "model"),
    ("kv", None),
    ("units", "model"),
)


def kernel(*names):
    return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)


class SelfAttention(nn.Module):
    heads: int = 8

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        k = d // self.heads
        qkv = []
        for name in ("query", "key", "value"):
            w = self.param(name, kernel("embed", "heads", "kv"), (d, self.heads, k))
            h = jnp.einsum("btd,dhk->bthk", x, w.astype(x.dtype))
            qkv.append(nn.with_logical_constraint(h, ("batch", "time", "heads", "kv")))
        a = jnp.einsum("bqhk,bthk->bhqt", qkv[0], qkv[1]) * k**-0.5
        o = jnp.einsum("bhqt,bthk->bqhk", nn.softmax(a), qkv[2])
        w = self.param("out", kernel("heads", "kv", "embed"), (self.heads, k, d))
        return jnp.einsum("bqhk,hkd->bqd", o, w.astype(x.dtype))


class FeedForward(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        wi = self.param("wi", kernel("embed", None, "mlp"), (d, 2, self.hidden))
        wo = self.param("wo", kernel("mlp", "embed"), (self.hidden, d))
        gate, up = jnp.moveaxis(jnp.einsum("btd,dcf->btcf", x, wi.astype(x.dtype)), 2, 0)
        h = nn.with_logical_constraint(nn.silu(gate) * up, ("batch", "time", "mlp"))
        return h @ wo.astype(x.dtype)


class Conformerish(nn.Module):
    layers: int = 2
    dim: int = 1024
    units: int = 1024

    @nn.compact
    def __call__(self, frames):
        w = self.param("stem", kernel("time", "embed"), (frames.shape[-1], self.dim))
        x = (frames @ w).astype(jnp.bfloat16)
        for i in range(self.layers):
            x = nn.with_logical_constraint(x, ("batch", "time", "embed"))
            x = x + SelfAttention(name=f"attn_{i}")(nn.RMSNorm(name=f"n0_{i}")(x).astype(x.dtype))
            x = x + FeedForward(4096, name=f"ffn_{i}")(nn.RMSNorm(name=f"n1_{i}")(x).astype(x.dtype))
        w = self.param("readout", kernel("embed", "units"), (self.dim, self.units))
        return nn.with_logical_constraint(x @ w.astype(x.dtype), ("batch", "time", "units"))


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    model = Conformerish()
    frames = jax.ShapeDtypeStruct((8, 512, 80), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    units = jax.ShapeDtypeStruct((8, 512), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    def init(key):
        variables = model.init(key, jnp.zeros((2, 512, 80)))
        return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3))

    abstract = jax.eval_shape(init, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, LOGICAL_RULES)
    abstract, shardings = nn.unbox(abstract), nn.unbox(shardings)
    state = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, shardings)

    def loss_fn(params, frames, units):
        logits = model.apply({"params": params}, frames).astype(jnp.float32)
        return optax.softmax_cross_entropy(logits, jax.nn.one_hot(units, logits.shape[-1])).mean()

    def train_step(state, frames, units):
        with mesh, nn.logical_axis_rules(LOGICAL_RULES):
            loss, grads = jax.value_and_grad(loss_fn)(state.params, frames, units)
            return state.apply_gradients(grads=grads), loss

    fn = jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))
    return fn, (state, frames, units)
