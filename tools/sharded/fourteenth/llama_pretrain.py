# mypy: ignore-errors
"""Fault: gathered. Each layer's weights are gathered in the scan body outside of the checkpointed block, so the whole
bf16 weights are inputs of the block and are kept for the backward pass, for all layers."""
import dataclasses
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    vocab: int = 32000
    dim: int = 1024
    hidden: int = 2816
    layers: int = 10
    heads: int = 16
    seq: int = 1024
    batch: int = 16


CFG = LlamaConfig()


def param_shapes(cfg):
    L, D, F = cfg.layers, cfg.dim, cfg.hidden
    return {
        "embed": (cfg.vocab, D),
        "head": (D, cfg.vocab),
        "norm": (D,),
        "layers": {
            "wqkv": (L, D, 3 * D), "wo": (L, D, D),
            "w_gate": (L, D, F), "w_up": (L, D, F), "w_down": (L, F, D),
            "ln1": (L, D), "ln2": (L, D),
        },
    }


def spec_of(shape):
    if len(shape) == 3:
        return P(None, "fsdp", None)
    return P("fsdp", None) if min(shape) > 64 and len(shape) == 2 else P()


def rms(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def build(mesh, cfg):
    act = NamedSharding(mesh, P("fsdp", None, None))
    whole = NamedSharding(mesh, P())

    def unshard(tree):
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole), tree)

    @jax.checkpoint
    def block(p, x):
        B, S, D = x.shape
        h = rms(x, p["ln1"])
        q, k, v = jnp.split((h @ p["wqkv"]).reshape(B, S, cfg.heads, -1), 3, axis=-1)
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        logits = jnp.where(jnp.tril(jnp.ones((S, S), bool)), logits, -1e30)
        probs = jax.nn.softmax(logits, -1).astype(x.dtype)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(B, S, D) @ p["wo"]
        h = rms(x, p["ln2"])
        x = x + (jax.nn.silu(h @ p["w_gate"]) * (h @ p["w_up"])) @ p["w_down"]
        return jax.lax.with_sharding_constraint(x, act)

    def loss_fn(params, tokens):
        x = jax.lax.with_sharding_constraint(params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]], act)

        def step(x, layer):
            layer = unshard(layer)  # FAULT
            return block(layer, x), None  # FAULT

        x, _ = jax.lax.scan(step, x, params["layers"])
        logits = rms(x, params["norm"]) @ unshard(params["head"])
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), tokens[:, 1:]).mean()

    return loss_fn


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    shapes = param_shapes(CFG)
    is_shape = lambda s: isinstance(s, tuple)
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, spec_of(s))), shapes, is_leaf=is_shape)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1e-2, momentum=0.9))
    opt = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, spec_of(s.shape))),
                       jax.eval_shape(tx.init, params))
    tokens = jax.ShapeDtypeStruct((CFG.batch, CFG.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P("fsdp", None)))
    loss_fn = build(mesh, CFG)
    shard = lambda t: jax.tree.map(lambda s: s.sharding, t)

    def train_step(params, opt, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        grads = jax.lax.with_sharding_constraint(grads, shard(params_struct))
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    params_struct = params
    fn = jax.jit(train_step, out_shardings=(shard(params), shard(opt), NamedSharding(mesh, P())), donate_argnums=(0, 1))
    return fn, (params, opt, tokens)
