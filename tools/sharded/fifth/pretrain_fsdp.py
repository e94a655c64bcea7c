# mypy: ignore-errors
"""Fault: gathered. Each layer's weights are gathered outside of the checkpointed function, so the
gathered copies of all layers are saved for the backward pass."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

D, FF, HEADS, KV, LAYERS, VOCAB, BATCH, SEQ = 1024, 2816, 8, 2, 8, 8192, 32, 512
HD = D // HEADS


def layer_table():
    """name -> (shape, dimension that FSDP splits)"""
    return {
        "ln1": ((D,), None), "ln2": ((D,), None),
        "wq": ((D, HEADS * HD), 0), "wk": ((D, KV * HD), 0), "wv": ((D, KV * HD), 0), "wo": ((HEADS * HD, D), 1),
        "w1": ((D, FF), 0), "w3": ((D, FF), 0), "w2": ((FF, D), 1),
    }


def spec(ndim, dim, lead=0):
    return P(*[None] * lead, *("fsdp" if i == dim else None for i in range(ndim)))


def abstract_params(mesh):
    def arr(shape, s):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, s))

    layers = {n: arr((LAYERS, *s), spec(len(s), d, lead=1)) for n, (s, d) in layer_table().items()}
    return {"embed": arr((VOCAB, D), P("fsdp", None)), "unembed": arr((D, VOCAB), P("fsdp", None)), "layers": layers}


def gather(mesh, w):
    """The ZeRO-3 all-gather of one layer, in bfloat16."""
    whole = NamedSharding(mesh, P())
    return {k: jax.lax.with_sharding_constraint(v.astype(jnp.bfloat16), whole) for k, v in w.items()}


def rmsnorm(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(x.dtype) * g


def rope(x):
    t, d = x.shape[1], x.shape[-1] // 2
    ang = jnp.arange(t)[:, None] * jnp.exp(-jnp.arange(d) * np.log(1e4) / d)
    c, s = jnp.cos(ang)[None, :, None].astype(x.dtype), jnp.sin(ang)[None, :, None].astype(x.dtype)
    a, b = x[..., :d], x[..., d:]
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def block(w, x):
    b, t, _ = x.shape
    h = rmsnorm(x, w["ln1"])
    q = rope((h @ w["wq"]).reshape(b, t, HEADS, HD))
    k = rope((h @ w["wk"]).reshape(b, t, KV, HD))
    v = (h @ w["wv"]).reshape(b, t, KV, HD)
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + a.reshape(b, t, D) @ w["wo"]
    h = rmsnorm(x, w["ln2"])
    return x + (jax.nn.silu(h @ w["w1"]) * (h @ w["w3"])) @ w["w2"]


def scan_layers(mesh, x, layers):
    def body(x, w):
        w = gather(mesh, w)  # FAULT
        return jax.checkpoint(block)(w, x), None  # FAULT

    return jax.lax.scan(body, x, layers)[0]


def scan_layers_regather(mesh, x, layers):
    @jax.checkpoint
    def body(x, w):
        return block(gather(mesh, w), x), None

    return jax.lax.scan(body, x, layers)[0]


def make_step(mesh, run_layers, opt):
    def loss_fn(params, tokens):
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("fsdp")))
        x = run_layers(mesh, x, params["layers"])
        logits = (x @ params["unembed"].astype(x.dtype)).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = opt.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return step


def build(devices, run_layers):
    mesh = Mesh(np.asarray(devices), ("fsdp",))
    opt = optax.sgd(1e-2, momentum=0.9)
    params = abstract_params(mesh)
    opt_state = jax.eval_shape(opt.init, params)
    opt_state = optax.tree_map_params(opt, lambda s, p: p, opt_state, params)
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P("fsdp", None)))
    keep = jax.tree.map(lambda s: s.sharding, (params, opt_state))
    fn = jax.jit(make_step(mesh, run_layers, opt), donate_argnums=(0, 1), out_shardings=(*keep, None))
    return fn, (params, opt_state, tokens)


def make_faulty(devices):
    return build(devices, scan_layers)


def make_fixed(devices):
    return build(devices, scan_layers_regather)
