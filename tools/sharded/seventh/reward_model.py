# mypy: ignore-errors
"""Fault: optimizer. The Adam state is declared replicated with one sharding for the whole tree, while the parameters are
split over the fsdp axis: both moments are whole on every chip."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

L, D, F, H, V = 4, 1024, 3072, 8, 16384
PAIRS, T = 4, 256


def abstract_params(mesh):
    def w(*shape, axis):
        spec = [None] * len(shape)
        spec[axis] = "fsdp"
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return dict(
        tok=w(V, D, axis=0),
        attn_in=w(L, D, 3 * D, axis=1),
        attn_out=w(L, D, D, axis=2),
        ffn_in=w(L, D, F, axis=1),
        ffn_out=w(L, F, D, axis=2),
        value=w(D, 1, axis=0),
    )


def reward(params, ids, mask, act):
    p16 = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
    x = jax.lax.with_sharding_constraint(p16["tok"][ids], act)

    @jax.checkpoint
    def layer(x, w):
        a_in, a_out, f_in, f_out = w
        b, t, _ = x.shape
        n = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        q, k, v = jnp.split((n @ a_in).reshape(b, t, 3 * H, D // H), 3, axis=2)
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, D) @ a_out
        n = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        x = x + jax.nn.gelu(n @ f_in) @ f_out
        return jax.lax.with_sharding_constraint(x, act), None

    x, _ = jax.lax.scan(layer, x, tuple(p16[k] for k in ("attn_in", "attn_out", "ffn_in", "ffn_out")))
    last = jnp.take_along_axis(x, (mask.sum(-1) - 1)[:, None, None], axis=1)[:, 0]
    return (last @ p16["value"])[:, 0].astype(jnp.float32)


def preference_loss(params, batch, act):
    chosen = reward(params, batch["chosen"], batch["chosen_mask"], act)
    rejected = reward(params, batch["rejected"], batch["rejected_mask"], act)
    return -jnp.mean(jax.nn.log_sigmoid(chosen - rejected))


def sharding_of(tree):
    return jax.tree.map(lambda s: s.sharding, tree)


def opt_sharding_simple(mesh, tx, params):
    shapes = jax.eval_shape(tx.init, params)
    return jax.tree.map(lambda _: NamedSharding(mesh, P()), shapes)  # FAULT


def opt_sharding_like_params(mesh, tx, params):
    shapes = jax.eval_shape(tx.init, params)
    return optax.tree_map_params(
        tx,
        lambda _, p: p.sharding,
        shapes,
        params,
        transform_non_params=lambda _: NamedSharding(mesh, P()),
    )


def configure(devices, opt_sharding):
    mesh = Mesh(np.array(devices), ("fsdp",))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-5, 100, 2000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))
    params = abstract_params(mesh)
    opt_sh = opt_sharding(mesh, tx, params)
    opt_state = jax.tree.map(
        lambda s, sh: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sh), jax.eval_shape(tx.init, params), opt_sh
    )
    act = NamedSharding(mesh, P("fsdp", None, None))
    rows = NamedSharding(mesh, P("fsdp", None))
    names = ("chosen", "chosen_mask", "rejected", "rejected_mask")
    batch = {k: jax.ShapeDtypeStruct((PAIRS, T), jnp.int32, sharding=rows) for k in names}

    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(preference_loss)(params, batch, act)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    fn = jax.jit(
        step,
        donate_argnums=(0, 1),
        out_shardings=(sharding_of(params), opt_sh, NamedSharding(mesh, P())),
    )
    return fn, (params, opt_state, batch)


def make_faulty(devices):
    return configure(devices, opt_sharding_simple)


def make_fixed(devices):
    return configure(devices, opt_sharding_like_params)
