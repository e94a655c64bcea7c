"""Three ways to lose memory: a donation that fits no result, a donated argument that is read after
its result is written, and a closed-over constant."""

import compiling
import jax
import jax.numpy as jnp
import numpy as np

config = compiling.options(__doc__)
sharding = compiling.single(config.platform)
W = np.random.default_rng(0).random((2048, 2048), np.float32)


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def f(params, big, x):  # noqa: ARG001
    h = x @ params["w"]
    return {"w": params["w"] - 0.1 * (x.T @ h)}, h.astype(jnp.bfloat16)


def g(state, xs):  # noqa: ARG001
    new = state * 2
    return new, (jnp.cumsum(state, 0) @ new.T).sum()


def h(x):
    return x @ W


rows = array(4096, 1024)
lowered = jax.jit(f, donate_argnums=(0, 1)).lower({"w": array(1024, 1024)}, rows, rows)
compiling.compile_and_report(lowered, "f")
compiling.compile_and_report(jax.jit(g, donate_argnums=0).lower(array(4096, 4096), array(4)), "g")
compiling.compile_and_report(jax.jit(h).lower(array(16, 2048)), "h")
