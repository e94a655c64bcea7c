# mypy: ignore-errors
"""Clean. FSDP over all sixteen chips: each layer's weights are gathered inside the rematerialised loop body and gathered again in the backward pass."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

cfg = dict(n=16, d=1536, f=4096, kv=4, q=12, vocab=4096, batch=16, seq=512)


def layer_shapes():
    hd = cfg["d"] // cfg["q"]
    return {
        "wq": (cfg["d"], cfg["d"]),
        "wkv": (cfg["d"], 2 * cfg["kv"] * hd),
        "wo": (cfg["d"], cfg["d"]),
        "w13": (cfg["d"], 2 * cfg["f"]),
        "w2": (cfg["f"], cfg["d"]),
    }


def swiglu(x, w13, w2):
    a, b = jnp.split(x @ w13, 2, axis=-1)
    return (jax.nn.silu(a) * b) @ w2


def normed(x):
    ms = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x.astype(jnp.float32) * lax.rsqrt(ms + 1e-5)).astype(x.dtype)


def llama_layer(x, w):
    b, s, d = x.shape
    hd = d // cfg["q"]
    h = normed(x)
    q = (h @ w["wq"]).reshape(b, s, cfg["q"], hd)
    k, v = jnp.split((h @ w["wkv"]).reshape(b, s, 2 * cfg["kv"], hd), 2, axis=2)
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d) @ w["wo"]
    return x + swiglu(normed(x), w["w13"], w["w2"])


def forward(params, tokens, mesh):
    whole = NamedSharding(mesh, P(None, None))
    act = NamedSharding(mesh, P("fsdp", None, None))

    def use(w):
        return lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole)

    def body(x, w):
        x = llama_layer(lax.with_sharding_constraint(x, act), jax.tree.map(use, w))
        return lax.with_sharding_constraint(x, act), None

    x = lax.with_sharding_constraint(use(params["embed"])[tokens], act)
    body = jax.checkpoint(body, policy=jax.checkpoint_policies.nothing_saveable)
    x, _ = lax.scan(body, x, params["layers"])
    return normed(x)


def loss_fn(params, tokens, mesh):
    h = forward(params, tokens[:, :-1], mesh)
    logits = (h @ params["unembed"].astype(jnp.bfloat16)).astype(jnp.float32)
    logits = lax.with_sharding_constraint(logits, NamedSharding(mesh, P("fsdp", None, None)))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    tx = optax.adafactor(1e-3, min_dim_size_to_factor=128)

    def sds(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {
        "embed": sds((cfg["vocab"], cfg["d"]), P("fsdp", None)),
        "unembed": sds((cfg["d"], cfg["vocab"]), P("fsdp", None)),
        "layers": {k: sds((cfg["n"], *s), P(None, "fsdp", None)) for k, s in layer_shapes().items()},
    }
    # The factored second moments are vectors per layer, small enough to be kept everywhere.
    opt = jax.tree.map(lambda s: sds(s.shape, P(), s.dtype), jax.eval_shape(tx.init, params))
    tokens = sds((cfg["batch"], cfg["seq"] + 1), P("fsdp", None), jnp.int32)

    def step(params, opt, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, mesh)
        grads = jax.tree.map(lambda g, p: lax.with_sharding_constraint(g, p.sharding), grads, specs)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    specs = params
    out = jax.tree.map(lambda s: s.sharding, (params, opt)) + (NamedSharding(mesh, P()),)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (params, opt, tokens)
