"""A profile and a compilation cache of one small training step, or its dump as text.

python profile_and_cache.py OUT used|dumped
"""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp


def train_step(weights, x):
    def loss(weights):
        return (jnp.tanh(x @ weights["up"]) @ weights["down"]).sum()

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def keep_compiles(folder):
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def use(step, weights, x, out):
    jax.block_until_ready(step(weights, x))
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 1
    options.python_tracer_level = 0
    with jax.profiler.trace(str(out / "profile"), profiler_options=options):
        jax.block_until_ready(step(weights, x))


def main(out, how):
    if how == "used":
        keep_compiles(out / "cache")
    weights = {"up": jnp.ones((64, 256)), "down": jnp.ones((256, 32))}
    x = jnp.ones((16, 64))
    step = jax.jit(train_step)
    if how == "used":
        use(step, weights, x, out)
    else:
        dump = {"xla_dump_to": str(out / "dump"), "xla_dump_hlo_as_text": True}
        step.lower(weights, x).compile(compiler_options=dump)


main(Path(sys.argv[1]), sys.argv[2])
