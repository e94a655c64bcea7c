# mypy: ignore-errors
"""Clean. Sequence parallelism over one long document: tokens are split by position, attention by
head after an all-to-all; weights are split over the same axis and gathered block by block.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

SEQ = "seq"
ARCH = {"blocks": 4, "width": 512, "heads": 8, "ffn": 2048, "vocab": 8192}
DOCUMENTS, LENGTH, QUERIES = 2, 4096, 512


def whole(shard, axis=0):
    return lax.all_gather(shard, SEQ, axis=axis, tiled=True)


def to_heads(x):
    """[b, t/n, h, k] to [b, t, h/n, k]"""
    return lax.all_to_all(x, SEQ, split_axis=2, concat_axis=1, tiled=True)


def to_positions(x):
    return lax.all_to_all(x, SEQ, split_axis=1, concat_axis=2, tiled=True)


def causal_attention(q, k, v):
    """Attention of this device's heads over all positions, some queries at a time."""
    b, t, h, d = q.shape

    @jax.checkpoint
    def some(args):
        q, start = args
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * d**-0.5
        seen = jnp.arange(t) <= (start + jnp.arange(QUERIES))[:, None]
        probs = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", probs, v)

    chunks = jnp.moveaxis(q.reshape(b, t // QUERIES, QUERIES, h, d), 1, 0)
    mixed = lax.map(some, (chunks, jnp.arange(0, t, QUERIES)))
    return jnp.moveaxis(mixed, 0, 1).reshape(q.shape)


def norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


@partial(jax.checkpoint, prevent_cse=False)
def block(x, w):
    b, t, d = x.shape
    split = (b, t, ARCH["heads"], d // ARCH["heads"])
    qkv = norm(x, w["scale1"]) @ whole(w["qkv"])
    q, k, v = (to_heads(part.reshape(split)) for part in jnp.split(qkv, 3, axis=-1))
    x += to_positions(causal_attention(q, k, v)).reshape(x.shape) @ whole(w["out"])
    return x + jax.nn.gelu(norm(x, w["scale2"]) @ whole(w["up"])) @ whole(w["down"]), None


@partial(jax.checkpoint, prevent_cse=False)
def losses(x, head, targets):
    logits = x @ whole(head)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)


def local_loss(params, tokens, targets):
    x = jax.checkpoint(lambda table: whole(table)[tokens])(params["embed"])
    x, _ = lax.scan(block, x, params["blocks"])
    return jnp.sum(losses(norm(x, params["scale"]), params["head"], targets)) / (DOCUMENTS * LENGTH)


def train_step(tx, params, opt_state, tokens, targets):
    loss, grads = jax.value_and_grad(local_loss)(params, tokens, targets)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, lax.psum(loss, SEQ)


def describe():
    """Shape and spec of every weight; the norms' scales are whole."""
    n, d, f, v = (ARCH[name] for name in ("blocks", "width", "ffn", "vocab"))
    rows = P(None, SEQ)
    return {
        "embed": ((v, d), P(SEQ)),
        "head": ((d, v), P(SEQ)),
        "scale": ((d,), P()),
        "blocks": {
            "scale1": ((n, d), P()),
            "scale2": ((n, d), P()),
            "qkv": ((n, d, 3 * d), rows),
            "out": ((n, d, d), rows),
            "up": ((n, d, f), rows),
            "down": ((n, f, d), rows),
        },
    }


def make_clean(devices):
    mesh = Mesh(np.array(devices), (SEQ,))
    tx = optax.adamw(3e-4, b2=0.95)

    def struct(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    leaf = lambda e: isinstance(e, tuple)  # noqa: E731
    params = jax.tree.map(lambda e: struct(*e), describe(), is_leaf=leaf)
    opt_state = optax.tree_utils.tree_map_params(
        tx,
        lambda moment, param: struct(moment.shape, param.sharding.spec, moment.dtype),
        jax.eval_shape(tx.init, params),
        params,
        transform_non_params=lambda count: struct(count.shape, P(), count.dtype),
    )
    tokens = struct((DOCUMENTS, LENGTH), P(None, SEQ), jnp.int32)
    args = (params, opt_state, tokens, tokens)
    specs = jax.tree.map(lambda a: a.sharding.spec, args)
    step = jax.shard_map(
        partial(train_step, tx), mesh=mesh, in_specs=specs, out_specs=(*specs[:2], P())
    )
    return jax.jit(step, donate_argnums=(0, 1)), args
