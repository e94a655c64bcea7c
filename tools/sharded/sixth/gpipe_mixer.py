# mypy: ignore-errors
"""Clean. GPipe over eight stages in shard_map: each device holds its stage's weights, microbatches travel by ppermute, remat per stage."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

STAGES, PER_STAGE = 8, 2
TOKENS, DIM, FF, TOKEN_FF = 196, 768, 3072, 384
MICRO, MICROBATCH, CLASSES = 16, 8, 1000


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def mixer(x, w):
    y = jnp.einsum("btd,tu->bud", norm(x), w["tok_in"])
    x = x + jnp.einsum("bud,ut->btd", jax.nn.gelu(y), w["tok_out"])
    return x + jax.nn.gelu(norm(x) @ w["ch_in"]) @ w["ch_out"]


@jax.checkpoint
def stage(weights, x):
    return lax.scan(lambda x, w: (mixer(x, w), None), x, weights)[0]


def pipeline(weights, head, micro, labels):
    """weights: [1, PER_STAGE, ...] here; micro: this device's share of the microbatches."""
    weights = jax.tree.map(lambda a: a[0], weights)
    me = lax.axis_index("stage")
    ring = [(i, (i + 1) % STAGES) for i in range(STAGES)]
    back = [(b, a) for a, b in ring]
    share = MICRO // STAGES

    def tick(carry, t):
        x, feed, loss = carry
        x = jnp.where(me == 0, feed[t % share], x)
        feed = jnp.where(t % share == share - 1, lax.ppermute(feed, "stage", back), feed)
        x = stage(weights, x)
        done = t - (STAGES - 1)
        y = lax.dynamic_index_in_dim(labels, jnp.clip(done, 0, MICRO - 1), keepdims=False)
        logp = jax.nn.log_softmax(norm(x.mean(1)) @ head)
        nll = -jnp.take_along_axis(logp, y[:, None], 1).mean()
        loss = loss + jnp.where((me == STAGES - 1) & (done >= 0), nll, 0.0)
        return (lax.ppermute(x, "stage", ring), feed, loss), None

    x0 = lax.pcast(jnp.zeros((MICROBATCH, TOKENS, DIM)), "stage", to="varying")
    l0 = lax.pcast(jnp.zeros(()), "stage", to="varying")
    (_, _, loss), _ = lax.scan(tick, (x0, micro, l0), jnp.arange(MICRO + STAGES - 1))
    return lax.psum(loss, "stage") / MICRO


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("stage",))
    by_stage, rep = NamedSharding(mesh, P("stage")), NamedSharding(mesh, P())
    shapes = {"tok_in": (TOKENS, TOKEN_FF), "tok_out": (TOKEN_FF, TOKENS), "ch_in": (DIM, FF), "ch_out": (FF, DIM)}
    weights = {k: jax.ShapeDtypeStruct((STAGES, PER_STAGE, *s), jnp.float32, sharding=by_stage)
               for k, s in shapes.items()}
    head = jax.ShapeDtypeStruct((DIM, CLASSES), jnp.float32, sharding=rep)
    micro = jax.ShapeDtypeStruct((MICRO, MICROBATCH, TOKENS, DIM), jnp.float32, sharding=by_stage)
    labels = jax.ShapeDtypeStruct((MICRO, MICROBATCH), jnp.int32, sharding=rep)
    loss_fn = jax.shard_map(pipeline, mesh=mesh, in_specs=(P("stage"), P(), P("stage"), P()), out_specs=P())

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=(by_stage, rep, rep))
    def step(weights, head, micro, labels):
        loss, (gw, gh) = jax.value_and_grad(loss_fn, argnums=(0, 1))(weights, head, micro, labels)
        weights = jax.tree.map(lambda w, g: w - 0.01 * g, weights, gw)
        return weights, head - 0.01 * gh, loss

    return step, (weights, head, micro, labels)
