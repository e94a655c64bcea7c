# mypy: ignore-errors
"""Clean. ZeRO stage one by choice: weights are replicated for cheap forward passes, the Adam moments and the update are split over the data axis."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, WIDTH, FF, HEADS, VOCAB = 6, 768, 3072, 12, 30720
BATCH, LENGTH, MASKED = 32, 128, 20


def shapes():
    return {
        "tok": (VOCAB, WIDTH),
        "pos": (LENGTH, WIDTH),
        "qkv": (LAYERS, WIDTH, 3 * WIDTH),
        "out": (LAYERS, WIDTH, WIDTH),
        "fc1": (LAYERS, WIDTH, FF),
        "fc2": (LAYERS, FF, WIDTH),
    }


class ZeroOneAdam:
    """Adam whose moments are split over the data axis; new weights are gathered once per step."""

    def __init__(self, mesh, lr=1e-4, b1=0.9, b2=0.98):
        self.mesh, self.lr, self.b1, self.b2 = mesh, lr, b1, b2

    def shard_of(self, shape):
        dim = len(shape) - 2
        spec = [None] * len(shape)
        spec[dim] = "data"
        return NamedSharding(self.mesh, P(*spec))

    def moments(self, shapes):
        one = {k: jax.ShapeDtypeStruct(s, jnp.float32, sharding=self.shard_of(s)) for k, s in shapes.items()}
        return {"m": one, "v": one}

    def apply(self, params, grads, state, step):
        new_p, new_m, new_v = {}, {}, {}
        t = step.astype(jnp.float32) + 1.0
        for k, p in params.items():
            own = self.shard_of(p.shape)
            g = jax.lax.with_sharding_constraint(grads[k].astype(jnp.float32), own)
            m = self.b1 * state["m"][k] + (1 - self.b1) * g
            v = self.b2 * state["v"][k] + (1 - self.b2) * g * g
            update = (m / (1 - self.b1**t)) / (jnp.sqrt(v / (1 - self.b2**t)) + 1e-8)
            piece = jax.lax.with_sharding_constraint(p, own).astype(jnp.float32) - self.lr * update
            whole = NamedSharding(self.mesh, P())
            new_p[k] = jax.lax.with_sharding_constraint(piece.astype(p.dtype), whole)
            new_m[k], new_v[k] = m, v
        return new_p, {"m": new_m, "v": new_v}


def encode(params, ids, act):
    x = params["tok"][ids] + params["pos"]

    @jax.checkpoint
    def layer(x, w):
        qkv, out, fc1, fc2 = w
        b, t, d = x.shape
        q, k, v = jnp.split((x @ qkv).reshape(b, t, 3 * HEADS, d // HEADS), 3, axis=2)
        x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ out
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        x = x + jax.nn.gelu(x @ fc1) @ fc2
        return jax.lax.with_sharding_constraint(x, act), None

    return jax.lax.scan(layer, x, tuple(params[k] for k in ("qkv", "out", "fc1", "fc2")))[0]


def masked_lm_loss(params, ids, where, labels, act):
    x = encode(params, ids, act)
    x = jnp.take_along_axis(x, where[..., None], axis=1)
    logits = (x @ params["tok"].T).astype(jnp.float32)
    hit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - hit)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data", None))
    act = NamedSharding(mesh, P("data", None, None))
    adam = ZeroOneAdam(mesh)
    params = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=rep) for k, s in shapes().items()}
    moments = adam.moments(shapes())

    def step(params, moments, count, ids, where, labels):
        loss, grads = jax.value_and_grad(masked_lm_loss)(params, ids, where, labels, act)
        params, moments = adam.apply(params, grads, moments, count)
        return params, moments, count + 1, loss

    ints = lambda n: jax.ShapeDtypeStruct((BATCH, n), jnp.int32, sharding=rows)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=rep)
    out = (rep, jax.tree.map(lambda s: s.sharding, moments), rep, rep)
    fn = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=out)
    return fn, (params, moments, count, ints(LENGTH), ints(MASKED), ints(MASKED))
