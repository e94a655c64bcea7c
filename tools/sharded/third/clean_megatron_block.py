# mypy: ignore-errors
"""Clean. Megatron tensor parallelism with the residual stream split over the sequence between the blocks, vocabulary split too."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
L, D, H, F, V, B, T = 8, 1024, 16, 4096, 16384, 16, 512


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "mp"))
    on = lambda x, *spec: lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def norm(x):
        return x * lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-6).astype(x.dtype)

    @jax.checkpoint
    def block(x, w):
        h = on(norm(x), "dp")
        q, k, v = (on(jnp.einsum("btd,dhk->bthk", h, w[n]), "dp", None, "mp") for n in "qkv")
        s = jnp.einsum("bqhk,bthk->bhqt", q, k).astype(jnp.float32) / 8
        a = jax.nn.softmax(jnp.where(jnp.tri(T, dtype=bool), s, -1e9)).astype(x.dtype)
        x = x + on(jnp.einsum("bhqt,bthk,hkd->bqd", a, v, w["o"]), "dp", "mp")
        h = on(jax.nn.gelu(on(norm(x), "dp") @ w["up"]), "dp", None, "mp")
        return x + on(h @ w["down"], "dp", "mp"), None

    def loss(params, tokens):
        x = on(params["embed"][tokens], "dp", "mp")
        x, _ = lax.scan(block, x, params["layers"])
        logits = on(jnp.einsum("btd,vd->btv", norm(x), params["embed"]).astype(jnp.float32), "dp", None, "mp")
        hot = jax.nn.one_hot(jnp.roll(tokens, -1, 1), V, dtype=jnp.bfloat16)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * hot, -1))

    def step(params, tokens):
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params, tokens))

    S = lambda shape, *spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    layers = {n: S((L, D, H, D // H), None, "dp", "mp") for n in "qkv"}
    layers |= {"o": S((L, H, D // H, D), None, "mp", None, "dp"), "up": S((L, D, F), None, "dp", "mp"), "down": S((L, F, D), None, "mp", "dp")}
    params = {"embed": S((V, D), "mp", "dp"), "layers": layers}
    return jax.jit(step, donate_argnums=0, out_shardings=jax.tree.map(lambda s: s.sharding, params)), (params, S((B, T), "dp", dtype=jnp.int32))
