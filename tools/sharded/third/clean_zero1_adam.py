# mypy: ignore-errors
"""Clean. ZeRO-1: a small bf16 copy of the weights everywhere, while the f32 masters and both moments of Adam are split; the activations are the most of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
WIDTH, DEPTH, BATCH, TX = 512, 6, 32768, optax.adam(1e-3)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    rep, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))
    split_or_not = lambda s: split if s.ndim and s.shape[0] % 8 == 0 else rep

    def loss(working, x, y):
        for layer in working:
            x = x + jax.nn.gelu(x @ layer["w"] + layer["b"])
        return jnp.mean((x - y).astype(jnp.float32) ** 2)

    def step(working, masters, opt, x, y):
        grads = jax.grad(loss)(working, x, y)
        grads = jax.tree.map(lambda g: jax.lax.with_sharding_constraint(g.astype(jnp.float32), split), grads)
        updates, opt = TX.update(grads, opt)
        masters = optax.apply_updates(masters, updates)
        return jax.tree.map(lambda m: m.astype(jnp.bfloat16), masters), masters, opt

    shapes = [{"w": jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32), "b": jax.ShapeDtypeStruct((WIDTH,), jnp.float32)} for _ in range(DEPTH)]
    place = lambda tree, rule, dtype=None: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, dtype or s.dtype, sharding=rule(s)), tree)
    working = place(shapes, lambda s: rep, jnp.bfloat16)
    masters, opt = place((shapes, jax.eval_shape(TX.init, shapes)), split_or_not)
    batch = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.bfloat16, sharding=split)
    outs = jax.tree.map(lambda s: s.sharding, (working, masters, opt))
    return jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=outs), (working, masters, opt, batch, batch)
