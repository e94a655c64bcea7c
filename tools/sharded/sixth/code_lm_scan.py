# mypy: ignore-errors
"""Fault: gathered. The scan body gathers the FSDP weights outside of the checkpointed block, so the gathered weights of all
layers are block inputs and are saved, stacked over layers, for the backward pass."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Hparams:
    n_layer: int = 16
    d: int = 1024
    n_head: int = 8
    ff: int = 4096
    vocab: int = 16_384
    batch: int = 16
    seq: int = 1024


def init_shapes(hp):
    n, d, f = hp.n_layer, hp.d, hp.ff
    return {
        "wte": (hp.vocab, d),
        "h": {"attn_in": (n, d, 3 * d), "attn_out": (n, d, d), "mlp_in": (n, d, f), "mlp_out": (n, f, d),
              "ln1": (n, d), "ln2": (n, d)},
        "lnf": (d,),
    }


def spec_of(path, shape):
    if len(shape) == 3:
        return P(None, "fsdp", None)
    if len(shape) == 2 and path[-1].key == "wte":
        return P("fsdp", None)
    return P()


def layer_norm(x, g):
    x32 = x.astype(jnp.float32)
    x32 = x32 - x32.mean(-1, keepdims=True)
    return (x32 * jax.lax.rsqrt((x32**2).mean(-1, keepdims=True) + 1e-5) * g).astype(x.dtype)


def block(hp, w, x):
    b, s, d = x.shape
    h = layer_norm(x, w["ln1"])
    q, k, v = jnp.split((h @ w["attn_in"]).reshape(b, s, hp.n_head, -1), 3, axis=-1)
    o = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d)
    x = checkpoint_name(x + o @ w["attn_out"], "attn_res")
    h = layer_norm(x, w["ln2"])
    return x + jax.nn.gelu(h @ w["mlp_in"]) @ w["mlp_out"]


def body_outer(hp, gather, x, w):
    run = jax.checkpoint(functools.partial(block, hp),
                         policy=jax.checkpoint_policies.save_only_these_names("attn_res"))
    return run(gather(w), x), None  # FAULT


def body_inner(hp, gather, x, w):
    run = jax.checkpoint(lambda w, x: block(hp, gather(w), x),
                         policy=jax.checkpoint_policies.save_only_these_names("attn_res"))
    return run(w, x), None


def build(devices, body):
    hp = Hparams()
    mesh = Mesh(np.array(devices), ("fsdp",))
    ns = functools.partial(NamedSharding, mesh)
    tx = optax.sgd(1e-2, momentum=0.9)
    shapes = init_shapes(hp)
    shard = jax.tree_util.tree_map_with_path(lambda p, s: ns(spec_of(p, s)), shapes,
                                             is_leaf=lambda s: isinstance(s, tuple))
    params = jax.tree.map(lambda s, h: jax.ShapeDtypeStruct(s, jnp.float32, sharding=h), shapes, shard,
                          is_leaf=lambda s: isinstance(s, tuple))
    momentum = params

    def gather(w):
        """Half precision first, then the all-gather: half the traffic."""
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, ns(P())), w)

    def loss_fn(params, tokens):
        x = params["wte"].astype(jnp.bfloat16)[tokens[:, :-1]]
        x = jax.lax.with_sharding_constraint(x, ns(P("fsdp")))
        x, _ = jax.lax.scan(functools.partial(body, hp, gather), x, params["h"])
        x = layer_norm(x, params["lnf"])
        logits = jnp.einsum("bsd,vd->bsv", x, params["wte"].astype(x.dtype)).astype(jnp.float32)
        logits = jax.lax.with_sharding_constraint(logits, ns(P("fsdp")))
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params, momentum, tokens):
        loss, g = jax.value_and_grad(loss_fn)(params, tokens)
        g = jax.tree.map(jax.lax.with_sharding_constraint, g, shard)
        updates, new = tx.update(g, (optax.TraceState(momentum), optax.EmptyState()), params)
        return optax.apply_updates(params, updates), new[0].trace, loss

    tokens = jax.ShapeDtypeStruct((hp.batch, hp.seq + 1), jnp.int32, sharding=ns(P("fsdp")))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shard, shard, None))
    return fn, (params, momentum, tokens)


def make_faulty(devices):
    return build(devices, body_outer)


def make_fixed(devices):
    return build(devices, body_inner)
