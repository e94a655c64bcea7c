# mypy: ignore-errors
"""Fault: gathered. The checkpoint policy of the layer scan saves "weights_full", the gathered weights, beside the
attention output: each chip keeps the full weights of all layers for the backward pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 16_384
    dim: int = 1024
    ff: int = 2816
    layers: int = 6
    heads: int = 8
    batch: int = 4
    seq: int = 512
    saved: tuple = ("attention_out", "weights_full")  # FAULT


def param_shapes(c):
    n, d = c.layers, c.dim
    return {
        "embed": (c.vocab, d),
        "layers": {
            "attn_norm": (n, d), "mlp_norm": (n, d),
            "wq": (n, d, d), "wk": (n, d, d), "wv": (n, d, d), "wo": (n, d, d),
            "gate": (n, d, c.ff), "up": (n, d, c.ff), "down": (n, c.ff, d),
        },
        "unembed": (d, c.vocab),
    }


def fsdp_spec(shape):
    """Splits the second last dimension of matrices; vectors stay whole."""
    if len(shape) < 2 or shape[-2] < 256:
        return P()
    return P(*(None,) * (len(shape) - 2), "fsdp", None)


def rms_norm(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)
    return y.astype(x.dtype) * scale.astype(x.dtype)


def layer(c, x, w):
    b, t, _ = x.shape
    y = rms_norm(x, w["attn_norm"])
    q, k, v = ((y @ w[n]).reshape(b, t, c.heads, -1) for n in ("wq", "wk", "wv"))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (c.dim // c.heads) ** -0.5
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
    a = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(x.dtype), v).reshape(b, t, -1)
    x = x + checkpoint_name(a @ w["wo"], "attention_out")
    y = rms_norm(x, w["mlp_norm"])
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]


def make_faulty(devices):
    c = Config()
    mesh = Mesh(np.array(devices), ("fsdp",))
    tx = optax.adafactor(1e-3, min_dim_size_to_factor=1 << 30, multiply_by_parameter_scale=False)

    def named(spec):
        return NamedSharding(mesh, spec)

    def full(w):
        w = jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), named(P()))
        return checkpoint_name(w, "weights_full")

    def place(tree):
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=named(fsdp_spec(a.shape))), tree)

    def loss_fn(params, tokens):
        rows = named(P("fsdp", None, None))
        x = full(params["embed"])[tokens]

        def body(x, w):
            x = jax.lax.with_sharding_constraint(x, rows)
            return layer(c, x, jax.tree.map(full, w)), None

        body = jax.checkpoint(body, policy=jax.checkpoint_policies.save_only_these_names(*c.saved))  # FAULT
        x, _ = jax.lax.scan(body, x, params["layers"])
        logits = (x @ full(params["unembed"])).astype(jnp.float32)
        labels = jnp.roll(tokens, -1, axis=1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    params = place(jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), param_shapes(c),
                                is_leaf=lambda s: isinstance(s, tuple)))
    opt_state = place(jax.eval_shape(tx.init, params))
    shardings = jax.tree.map(lambda a: a.sharding, (params, opt_state))

    def step(state, tokens):
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        grads = jax.lax.with_sharding_constraint(grads, shardings[0])
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    tokens = jax.ShapeDtypeStruct((c.batch, c.seq), jnp.int32, sharding=named(P("fsdp", None)))
    fn = jax.jit(step, donate_argnums=0, out_shardings=(shardings, named(P())))
    return fn, ((params, opt_state), tokens)
