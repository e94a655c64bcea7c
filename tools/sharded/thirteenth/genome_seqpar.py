# mypy: ignore-errors
"""Clean. Long DNA model with the sequence divided over "seq": keys and values (two narrow heads) are gathered because every position attends to all; the weights of this small model are whole."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LETTERS, DIM, FF, Q_HEADS, KV_HEADS, HEAD, DEPTH = 6, 256, 512, 8, 2, 32, 3
BATCH, LENGTH, CHUNK, KERNEL, TRACKS = 4, 32768, 32, 9, 128
TOKENS = P("data", "seq")


def init(key):
    ks = iter(jax.random.split(key, 8 * DEPTH + 2))
    w = lambda *s: jax.random.normal(next(ks), s) * s[0] ** -0.5
    layer = lambda: {
        "conv": w(KERNEL, DIM),
        "q": w(DIM, Q_HEADS * HEAD),
        "k": w(DIM, KV_HEADS * HEAD),
        "v": w(DIM, KV_HEADS * HEAD),
        "o": w(Q_HEADS * HEAD, DIM),
        "up": w(DIM, FF),
        "down": w(FF, DIM),
    }
    return {"embed": w(LETTERS, DIM), "layers": [layer() for _ in range(DEPTH)], "head": w(DIM, TRACKS)}


def norm(x):
    f = x.astype(jnp.float32)
    return (f * lax.rsqrt(jnp.square(f).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def depthwise(x, kernel):
    """A short convolution; the borders come from the neighbours on "seq"."""
    n, half = lax.axis_size("seq"), KERNEL // 2
    left = lax.ppermute(x[:, -half:], "seq", [(i, i + 1) for i in range(n - 1)])
    right = lax.ppermute(x[:, :half], "seq", [(i + 1, i) for i in range(n - 1)])
    padded = jnp.concatenate([left, x, right], 1)
    return sum(padded[:, i : i + x.shape[1]] * kernel[i] for i in range(KERNEL))


def attention(x, w):
    b, s, _ = x.shape
    q = (x @ w["q"]).reshape(b, s // CHUNK, CHUNK, KV_HEADS, Q_HEADS // KV_HEADS, HEAD)
    kv = jnp.stack([x @ w["k"], x @ w["v"]]).reshape(2, b, s, KV_HEADS, HEAD)
    k, v = lax.all_gather(kv, "seq", axis=2, tiled=True)

    @jax.checkpoint
    def chunk(_, qc):
        score = jnp.einsum("bqngd,bknd->bngqk", qc, k).astype(jnp.float32) * HEAD**-0.5
        return None, jnp.einsum("bngqk,bknd->bqngd", jax.nn.softmax(score).astype(v.dtype), v)

    _, out = lax.scan(chunk, None, jnp.moveaxis(q, 1, 0))
    return jnp.moveaxis(out, 0, 1).reshape(b, s, -1) @ w["o"]


@jax.checkpoint
def layer(x, w):
    w = jax.tree.map(lambda a: a.astype(x.dtype), w)
    x = x + depthwise(norm(x), w["conv"])
    x = x + attention(norm(x), w)
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def local_loss(params, dna, tracks):
    x = params["embed"].astype(jnp.bfloat16)[dna]
    for w in params["layers"]:
        x = layer(x, w)
    rate = jax.nn.softplus((norm(x) @ params["head"].astype(x.dtype)).astype(jnp.float32))
    poisson = rate - tracks.astype(jnp.float32) * jnp.log(rate + 1e-6)
    return lax.pmean(poisson.mean(), ("data", "seq"))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "seq"))
    loss = jax.shard_map(local_loss, mesh=mesh, in_specs=(P(), TOKENS, TOKENS), out_specs=P())
    tx = optax.lion(1e-4)

    def step(params, opt_state, dna, tracks):
        value, grads = jax.value_and_grad(loss)(params, dna, tracks)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, TOKENS)
    fn = jax.jit(step, in_shardings=(whole, whole, split, split), out_shardings=whole, donate_argnums=(0, 1))
    params = jax.eval_shape(init, jax.random.key(0))
    dna = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    tracks = jax.ShapeDtypeStruct((BATCH, LENGTH, TRACKS), jnp.float16)
    return fn, (params, jax.eval_shape(tx.init, params), dna, tracks)
