# mypy: ignore-errors
"""Clean. A GPipe pipeline in shard_map: each device holds its own stage, micro-batches travel by ppermute, in and outputs live on one stage at a time."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

STAGES = 8
MICRO, MICRO_ROWS, FEATURES, WIDE = 16, 128, 1024, 2048


def stage_fn(w, x):
    """One stage: two residual feed-forward blocks."""
    for i in range(2):
        x = x + jnp.tanh(x @ w["in"][i]) @ w["out"][i]
    return x


def pipeline(w, micro):
    """Runs on one device; `micro` is this stage's share of the micro-batches ([MICRO / STAGES, rows, features])."""
    w = jax.tree.map(lambda a: a[0], w)
    me = lax.axis_index("stage")
    per_device = micro.shape[0]
    ring = [(i, (i + 1) % STAGES) for i in range(STAGES)]

    def tick(carry, t):
        current, queue, done = carry
        incoming = queue[(t % MICRO) // STAGES % per_device]
        current = jnp.where(me == 0, incoming, current)
        current = jax.checkpoint(stage_fn)(w, current)
        slot = jnp.clip((t - STAGES + 1) // STAGES, 0, per_device - 1)
        finished = (me == STAGES - 1) & (t >= STAGES - 1)
        done = jnp.where(finished, done.at[slot].set(current), done)
        current = lax.ppermute(current, "stage", ring)
        queue = lax.ppermute(queue, "stage", [(b, a) for a, b in ring])
        done = lax.ppermute(done, "stage", ring)
        return (current, queue, done), None

    start = (jnp.zeros_like(micro[0]), micro, jnp.zeros_like(micro))
    (_, _, done), _ = lax.scan(tick, start, jnp.arange(MICRO + STAGES - 1))
    return done


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("stage",))
    by_stage = NamedSharding(mesh, P("stage"))
    run = shard_map(
        pipeline, mesh=mesh, in_specs=(P("stage"), P("stage")), out_specs=P("stage"), check_vma=False
    )
    w = {
        "in": jax.ShapeDtypeStruct((STAGES, 2, FEATURES, WIDE), jnp.float32, sharding=by_stage),
        "out": jax.ShapeDtypeStruct((STAGES, 2, WIDE, FEATURES), jnp.float32, sharding=by_stage),
    }
    micro = jax.ShapeDtypeStruct((MICRO, MICRO_ROWS, FEATURES), jnp.float32, sharding=by_stage)

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(by_stage, NamedSharding(mesh, P())))
    def step(w, x, y):
        def loss_fn(w):
            return jnp.mean(jnp.square(run(w, x) - y))

        loss, g = jax.value_and_grad(loss_fn)(w)
        return jax.tree.map(lambda a, b: a - 0.01 * b, w, g), loss

    return step, (w, micro, micro)
