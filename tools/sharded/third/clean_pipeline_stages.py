# mypy: ignore-errors
"""Clean. Four pipeline stages times two data replicas in shard_map: microbatches move along by ppermute, and each device has the weights of its own stage."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
STAGES, PER_STAGE, WIDTH, MICRO, SIZE = 4, 2, 1024, 16, 2048


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("stage", "data"))

    @jax.checkpoint
    def stage(w, x):
        for i in range(PER_STAGE):
            x = x + jax.nn.relu(x @ w[i])
        return x

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("stage"), P("stage", "data")), out_specs=P("stage", "data"), check_vma=False)
    def pipeline(w, micro):
        me = lax.axis_index("stage")
        forward = [(i, (i + 1) % STAGES) for i in range(STAGES)]
        back = [(b, a) for a, b in forward]

        def tick(carry, t):
            x, queue, done = carry
            x = jnp.where(me == 0, queue[0], x)
            y = stage(w[0], x)
            queue = jnp.where(t % (MICRO // STAGES) == MICRO // STAGES - 1, lax.ppermute(queue, "stage", back), jnp.roll(queue, -1, 0))
            done = jnp.where(me == STAGES - 1, jnp.roll(done, -1, 0).at[-1].set(y), done)
            return (lax.ppermute(y, "stage", forward), queue, done), None

        (_, _, done), _ = lax.scan(tick, (jnp.zeros_like(micro[0]), micro, jnp.zeros_like(micro)), jnp.arange(MICRO + STAGES - 1))
        return done

    w = jax.ShapeDtypeStruct((STAGES, PER_STAGE, WIDTH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("stage")))
    micro = jax.ShapeDtypeStruct((MICRO, SIZE, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("stage", "data")))
    return jax.jit(pipeline, donate_argnums=1), (w, micro)
