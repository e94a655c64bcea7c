# mypy: ignore-errors
"""Fault: optimizer. The function that gives the optimizer state its specs knows Adam's mu and nu, but
not the gradients that MultiSteps accumulates, which every chip therefore holds whole."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.tree_util import GetAttrKey, tree_map_with_path

TARGET = "tpu-v5e:4x4"


class Settings:
    vocab, width, hidden, heads, depth = 12288, 768, 3072, 12, 2
    batch, length = 32, 256
    accumulate = 8


def init(key):
    s, ks = Settings, iter(jax.random.split(key, 32))

    def w(*shape):
        return jax.random.normal(next(ks), shape) * shape[0] ** -0.5

    blocks = {
        f"block{i}": {
            "attn": {"qkv": w(s.width, 3 * s.width), "proj": w(s.width, s.width)},
            "mlp": {"up": w(s.width, s.hidden), "down": w(s.hidden, s.width)},
            "scale": jnp.ones((2, s.width)),
        }
        for i in range(s.depth)
    }
    return {"tok": w(s.vocab, s.width), "pos": w(s.length, s.width), "head": w(s.width, s.vocab), **blocks}


def param_spec(path, leaf):
    name = path[-1].key
    if name in ("tok", "proj", "down"):
        return P("model", "data")
    if name in ("head", "qkv", "up"):
        return P("data", "model")
    return P()


def opt_spec(path, leaf):
    """Moments are split as the parameters, counters are everywhere."""
    fields = [k.name for k in path if isinstance(k, GetAttrKey)]
    if "mu" in fields or "nu" in fields:  # FAULT
        return param_spec(path, leaf)
    return P()  # FAULT


def opt_spec_all(path, leaf):
    return P() if leaf.ndim < 2 else param_spec(path, leaf)


def norm(x, scale):
    m, v = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * scale.astype(x.dtype)


@jax.checkpoint
def transformer_block(p, x):
    b, t, d = x.shape
    h = norm(x, p["scale"][0])
    q, k, v = jnp.split((h @ p["attn"]["qkv"].astype(h.dtype)).reshape(b, t, Settings.heads, -1), 3, -1)
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
    x = x + a @ p["attn"]["proj"].astype(x.dtype)
    h = norm(x, p["scale"][1])
    return x + jax.nn.gelu(h @ p["mlp"]["up"].astype(h.dtype)) @ p["mlp"]["down"].astype(h.dtype)


def loss_fn(params, ids):
    inputs, targets = ids[:, :-1], ids[:, 1:]
    x = params["tok"].astype(jnp.bfloat16)[inputs] + params["pos"].astype(jnp.bfloat16)
    for i in range(Settings.depth):
        x = transformer_block(params[f"block{i}"], x)
    logits = (x @ params["head"].astype(x.dtype)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def build(devices, opt_spec):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    tx = optax.MultiSteps(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4)), every_k_schedule=Settings.accumulate
    )

    def shardings(rule, tree):
        return tree_map_with_path(lambda path, leaf: NamedSharding(mesh, rule(path, leaf)), tree)  # FAULT

    params = jax.eval_shape(init, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    state_shardings = (shardings(param_spec, params), shardings(opt_spec, opt_state))  # FAULT
    batch_sharding = NamedSharding(mesh, P("data", None))

    def micro_step(state, ids):
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_fn)(params, ids)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    fn = jax.jit(
        micro_step,
        in_shardings=(state_shardings, batch_sharding),
        out_shardings=(state_shardings, NamedSharding(mesh, P())),
        donate_argnums=0,
    )
    ids = jax.ShapeDtypeStruct((Settings.batch, Settings.length + 1), jnp.int32)
    return fn, ((params, opt_state), ids)


def make_faulty(devices):
    return build(devices, opt_spec)


def make_fixed(devices):
    return build(devices, opt_spec_all)
