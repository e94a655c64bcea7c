# mypy: ignore-errors
"""Fault: optimizer. Adam's moments follow the parameters over a 3D mesh, but the accumulated gradients of optax.MultiSteps are placed on every chip."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
D, F, V, LAYERS, B, T = 1024, 4096, 16384, 3, 32, 256
TX = optax.MultiSteps(optax.adamw(1e-4), every_k_schedule=8)


def parameter_specs():
    layer = {
        "qkv": ((D, 3, 16, 64), P("fsdp", None, "tensor")),
        "proj": ((16, 64, D), P("tensor", None, "fsdp")),
        "up": ((D, F), P("fsdp", "tensor")),
        "down": ((F, D), P("tensor", "fsdp")),
    }
    return {"embed": ((V, D), P("tensor", "fsdp"))} | {f"layer_{i}": layer for i in range(LAYERS)}


def forward(params, tokens, mesh):
    stream = NamedSharding(mesh, P(("replica", "fsdp")))
    x = jax.lax.with_sharding_constraint(params["embed"][tokens].astype(jnp.bfloat16), stream)

    @jax.checkpoint
    def layer(w, x):
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        q, k, v = jnp.einsum("btd,dchk->cbthk", x, w["qkv"])
        o = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("bthk,hkd->btd", o, w["proj"])
        return jax.lax.with_sharding_constraint(x + jax.nn.gelu(x @ w["up"]) @ w["down"], stream)

    for i in range(LAYERS):
        x = layer(params[f"layer_{i}"], x)
    return (x @ params["embed"].T.astype(jnp.bfloat16)).astype(jnp.float32)


def place_state(shapes, param_shardings, mesh, accumulator):
    everywhere = NamedSharding(mesh, P())
    put = lambda s, d: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=d)
    like_params = lambda tree: jax.tree.map(put, tree, param_shardings)
    whole = lambda tree: jax.tree.map(lambda s: put(s, everywhere), tree)  # FAULT
    adam, *rest = shapes.inner_opt_state
    adam = adam._replace(count=whole(adam.count), mu=like_params(adam.mu), nu=like_params(adam.nu))
    return whole(shapes)._replace(
        inner_opt_state=(adam, *whole(tuple(rest))),
        acc_grads=like_params(shapes.acc_grads) if accumulator == "sharded" else whole(shapes.acc_grads),  # FAULT
    )


def build(devices, accumulator):
    mesh = Mesh(np.array(devices).reshape(2, 2, 4), ("replica", "fsdp", "tensor"))
    is_entry = lambda x: isinstance(x, tuple)
    params = jax.tree.map(lambda e: jax.ShapeDtypeStruct(e[0], jnp.float32, sharding=NamedSharding(mesh, e[1])), parameter_specs(), is_leaf=is_entry)
    shardings = jax.tree.map(lambda s: s.sharding, params)
    state = place_state(jax.eval_shape(TX.init, params), shardings, mesh, accumulator)  # FAULT
    tokens = jax.ShapeDtypeStruct((B, T), jnp.int32, sharding=NamedSharding(mesh, P(("replica", "fsdp"))))

    def micro_step(params, state, tokens):
        def loss(params):
            logits = forward(params, tokens, mesh)[:, :-1]
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        updates, state = TX.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    outs = (shardings, jax.tree.map(lambda s: s.sharding, state))
    return jax.jit(micro_step, donate_argnums=(0, 1), out_shardings=outs), (params, state, tokens)


def make_faulty(devices):
    return build(devices, "whole")  # FAULT


def make_fixed(devices):
    return build(devices, "sharded")
