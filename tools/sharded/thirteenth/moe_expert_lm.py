# mypy: ignore-errors
"""Clean. Mixture-of-experts language model: experts live on their chips, tokens travel by all_to_all, attention weights are gathered layer by layer inside the checkpoint; routers and norms are whole."""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
AX = "ep"


@dataclass(frozen=True)
class MoE:
    layers: int = 8
    dim: int = 768
    ff: int = 1536
    heads: int = 12
    experts: int = 32
    capacity: float = 1.25
    vocab: int = 8192
    batch: int = 32
    seq: int = 512

    def table(self):
        L, D, F, E = self.layers, self.dim, self.ff, self.experts
        return {
            "embed": ((self.vocab, D), P(AX)),
            "blocks": {
                "ln1": ((L, D), P()),
                "ln2": ((L, D), P()),
                "qkv": ((L, D, 3 * D), P(None, AX)),
                "out": ((L, D, D), P(None, AX)),
                "router": ((L, D, E), P()),
                "w_in": ((L, E, D, F), P(None, AX)),
                "w_out": ((L, E, F, D), P(None, AX)),
            },
        }


def whole(w):
    return lax.all_gather(w.astype(jnp.bfloat16), AX, axis=0, tiled=True)


def norm(x, g):
    f = x.astype(jnp.float32)
    return (f * lax.rsqrt(jnp.square(f).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def attention(c, x, w):
    b, t, d = x.shape
    q, k, v = (a.reshape(b, t, c.heads, -1) for a in jnp.split(x @ whole(w["qkv"]), 3, -1))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // c.heads) ** -0.5
    s = jax.nn.softmax(jnp.where(jnp.tri(t, dtype=bool), s, -1e30)).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", s, v).reshape(b, t, d) @ whole(w["out"])


def experts(c, x, w):
    b, t, d = x.shape
    flat = x.reshape(-1, d)
    room = int(c.capacity * b * t / c.experts)
    gates = jax.nn.softmax(flat.astype(jnp.float32) @ w["router"])
    choice, gate = gates.argmax(-1), gates.max(-1)
    onehot = jax.nn.one_hot(choice, c.experts, dtype=jnp.int32)
    slot = jnp.sum(jnp.cumsum(onehot, 0) * onehot, -1) - 1
    fits = slot < room
    send = jnp.zeros((c.experts, room, d), x.dtype).at[choice, jnp.where(fits, slot, room)].set(flat, mode="drop")
    got = lax.all_to_all(send, AX, split_axis=0, concat_axis=1, tiled=True)
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", got, w["w_in"].astype(x.dtype)))
    y = jnp.einsum("ecf,efd->ecd", h, w["w_out"].astype(x.dtype))
    back = lax.all_to_all(y, AX, split_axis=1, concat_axis=0, tiled=True)
    y = back[choice, jnp.minimum(slot, room - 1)] * (gate * fits)[:, None].astype(x.dtype)
    balance = c.experts * jnp.sum(onehot.astype(jnp.float32).mean(0) * gates.mean(0))
    return y.reshape(b, t, d), balance


def local_loss(c, params, tokens):
    embed = whole(params["embed"])

    @jax.checkpoint
    def block(x, w):
        x = x + attention(c, norm(x, w["ln1"]), w)
        y, balance = experts(c, norm(x, w["ln2"]), w)
        return x + y, balance

    x, balance = lax.scan(block, embed[tokens[:, :-1]], params["blocks"])
    logits = (x @ embed.T).astype(jnp.float32)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
    return lax.pmean(ce + 0.01 * balance.mean(), AX)


def make_clean(devices):
    c = MoE()
    mesh = Mesh(np.array(devices).reshape(-1), (AX,))
    pair = lambda e: isinstance(e, tuple) and isinstance(e[1], P)
    specs = jax.tree.map(lambda e: e[1], c.table(), is_leaf=pair)
    params = jax.tree.map(lambda e: jax.ShapeDtypeStruct(e[0], jnp.float32, sharding=NamedSharding(mesh, e[1])), c.table(), is_leaf=pair)
    loss = jax.shard_map(partial(local_loss, c), mesh=mesh, in_specs=(specs, P(AX)), out_specs=P())
    tx = optax.sgd(1e-2, momentum=0.9, nesterov=True)
    momentum = jax.tree.map(lambda s: s, jax.eval_shape(tx.init, params))
    momentum = optax.tree_utils.tree_map_params(tx, lambda s, p: p, momentum, params)

    def step(params, momentum, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, momentum = tx.update(grads, momentum, params)
        return optax.apply_updates(params, updates), momentum, value

    tokens = jax.ShapeDtypeStruct((c.batch, c.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P(AX)))
    return jax.jit(step, donate_argnums=(0, 1)), (params, momentum, tokens)
