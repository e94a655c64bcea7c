# mypy: ignore-errors
"""Fault: dropped. The expert weights are declared with the logical axis "experts" but the table maps "expert": the lookup
gives None, and the weights, gradients and moments of all experts are whole along the expert axis of the mesh."""
import dataclasses
import functools
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LOGICAL_AXES = {
    "batch": ("data", "ep"),
    "embed": "data",
    "vocab": "ep",
    "heads": "ep",
    "expert": "ep",  # FAULT
    "act_group": "data",
    "act_expert": "ep",
}


def spec(*names):
    return P(*(LOGICAL_AXES.get(n) for n in names))


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 16384
    d: int = 512
    ff: int = 2048
    layers: int = 4
    heads: int = 8
    experts: int = 16
    top_k: int = 2
    batch: int = 16
    seq: int = 512
    capacity: float = 1.25


@dataclasses.dataclass(frozen=True)
class Weight:
    shape: tuple
    axes: tuple


def model_weights(c):
    L, d = c.layers, c.d
    return {
        "embed": Weight((c.vocab, d), ("vocab", "embed")),
        "blocks": {
            "qkv": Weight((L, d, 3, c.heads, d // c.heads), ("layers", "embed", None, "heads", None)),
            "out": Weight((L, c.heads, d // c.heads, d), ("layers", "heads", None, "embed")),
            "router": Weight((L, d, c.experts), ("layers", None, None)),
            "w_in": Weight((L, c.experts, d, c.ff), ("layers", "experts", "embed", "mlp")),  # FAULT
            "w_out": Weight((L, c.experts, c.ff, d), ("layers", "experts", "mlp", "embed")),  # FAULT
        },
    }


def moe(c, constrain, p, x):
    g, s, d = x.shape
    cap = int(c.capacity * s * c.top_k / c.experts)
    gates = jax.nn.softmax((x @ p["router"].astype(x.dtype)).astype(jnp.float32))
    top, idx = jax.lax.top_k(gates, c.top_k)
    onehot = jax.nn.one_hot(idx, c.experts)  # g s k e
    pos = jnp.cumsum(onehot.reshape(g, s * c.top_k, -1), 1).reshape(onehot.shape) * onehot - 1
    slots = jax.nn.one_hot(pos, cap, dtype=x.dtype)  # g s k e c
    dispatch = slots.sum(2)
    combine = jnp.einsum("gsk,gskec->gsec", top.astype(x.dtype), slots)
    h = constrain(jnp.einsum("gsec,gsd->egcd", dispatch, x), "act_expert", "act_group")
    h = jax.nn.gelu(jnp.einsum("egcd,edf->egcf", h, p["w_in"].astype(x.dtype)))
    h = constrain(jnp.einsum("egcf,efd->egcd", h, p["w_out"].astype(x.dtype)), "act_expert", "act_group")
    return constrain(jnp.einsum("gsec,egcd->gsd", combine, h), "batch")


def loss_fn(c, constrain, params, tokens):
    x = constrain(params["embed"].astype(jnp.bfloat16)[tokens], "batch")

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def block(x, p):
        q, k, v = jnp.moveaxis(jnp.einsum("bsd,dthn->bsthn", x, p["qkv"].astype(x.dtype)), 2, 0)
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = constrain(x + jnp.einsum("bshn,hnd->bsd", a, p["out"].astype(x.dtype)), "batch")
        return x + moe(c, constrain, p, x), None

    x, _ = jax.lax.scan(block, x, params["blocks"])
    logits = (x[:, :-1] @ params["embed"].astype(x.dtype).T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def make_faulty(devices):
    c = Config()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "ep"))
    constrain = lambda x, *names: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec(*names)))
    struct = lambda w: jax.ShapeDtypeStruct(w.shape, jnp.float32, sharding=NamedSharding(mesh, spec(*w.axes)))
    params = jax.tree.map(struct, model_weights(c), is_leaf=lambda w: isinstance(w, Weight))
    tx = optax.lion(1e-4)
    shardings = jax.tree.map(lambda p: p.sharding, params)
    opt = optax.tree_map_params(tx, lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p.sharding),
                                jax.eval_shape(tx.init, params), params,
                                transform_non_params=lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, P())))

    def step(params, opt, tokens):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, c, constrain))(params, tokens)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    tokens = jax.ShapeDtypeStruct((c.batch, c.seq), jnp.int32, sharding=NamedSharding(mesh, spec("batch")))
    out = (shardings, jax.tree.map(lambda s: s.sharding, opt), NamedSharding(mesh, P()))
    return jax.jit(step, out_shardings=out, donate_argnums=(0, 1)), (params, opt, tokens)
