# mypy: ignore-errors
"""Clean. 4 x 4 chips: a transformer's forward pass and gradient with weights over both axes, batch over `data`, heads and hidden over `model`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
L, D, H, F, V, B, T = 8, 1024, 16, 4096, 16384, 32, 256
SPEC = {"q": P(None, "data", "model"), "k": P(None, "data", "model"), "v": P(None, "data", "model"), "o": P(None, "model", None, "data"), "up": P(None, "data", "model"), "down": P(None, "model", "data")}


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    pin = lambda x, *s: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*s)))

    @jax.checkpoint
    def block(x, w):
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        q, k, v = (pin(jnp.einsum("btd,dhs->bths", h, w[n]), "data", None, "model") for n in "qkv")
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = pin(x + jnp.einsum("bths,hsd->btd", a, w["o"]), "data", None, "model")
        h = pin(jax.nn.gelu(x @ w["up"]), "data", None, "model")
        return pin(x + h @ w["down"], "data", None, "model"), None

    def train(params, state, tokens, labels):
        def loss(p):
            x = pin(p["embed"][tokens], "data", None, "model")
            x, _ = jax.lax.scan(block, x, p["blocks"])
            logits = pin((x @ p["embed"].T).astype(jnp.float32), "data", None, "model")
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        g = jax.grad(loss)(params)
        up, state = tx.update(g, state, params)
        return optax.apply_updates(params, up), state

    tx = optax.sgd(1e-2, momentum=0.9)
    shape = {"q": (L, D, H, 64), "k": (L, D, H, 64), "v": (L, D, H, 64), "o": (L, H, 64, D), "up": (L, D, F), "down": (L, F, D)}
    params = {"embed": jax.ShapeDtypeStruct((V, D), jnp.bfloat16, sharding=NamedSharding(mesh, P("model", "data"))),
              "blocks": {n: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, SPEC[n])) for n, s in shape.items()}}
    state = jax.eval_shape(tx.init, params)
    state = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(params))
    ids = jax.ShapeDtypeStruct((B, T), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    outs = jax.tree.map(lambda s: s.sharding, (params, state))
    return jax.jit(train, donate_argnums=(0, 1), out_shardings=outs), (params, state, ids, ids)
