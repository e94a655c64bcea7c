# mypy: ignore-errors
"""Clean. Expert parallelism in shard_map: tokens travel to their experts and back by all_to_all; the router is replicated because it is tiny."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

EXPERTS, D, FF, TOKENS, LAYERS = 32, 1024, 4096, 32768, 3
CHIPS = 16


def capacity(tokens_per_chip):
    return 2 * tokens_per_chip // EXPERTS


def dispatch_mask(x, router):
    """Switch routing on local tokens: [tokens, experts, capacity] one-hot of the slot of each token."""
    probs = jax.nn.softmax((x @ router).astype(jnp.float32), axis=-1)
    expert = jax.nn.one_hot(jnp.argmax(probs, -1), EXPERTS)
    position = (jnp.cumsum(expert, axis=0) - 1.0) * expert
    slots = capacity(x.shape[0])
    slot = jax.nn.one_hot(position.sum(-1).astype(jnp.int32), slots)
    mask = (expert[:, :, None] * slot[:, None, :]).astype(x.dtype)
    gate = jnp.sum(probs * expert, axis=-1).astype(x.dtype)
    return mask, gate


def moe_layer(x, weights):
    router, wi, wo = weights
    mask, gate = dispatch_mask(x, router)
    slots = jnp.einsum("td,tec->ecd", x, mask)
    # [experts, slots, d] -> [local experts, chips * slots, d]
    slots = lax.all_to_all(slots, "ep", split_axis=0, concat_axis=1, tiled=True)
    h = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", slots, wi))
    y = jnp.einsum("ecf,efd->ecd", h, wo)
    y = lax.all_to_all(y, "ep", split_axis=1, concat_axis=0, tiled=True)
    return x + gate[:, None] * jnp.einsum("ecd,tec->td", y, mask), None


def local_loss(weights, x, y):
    out, _ = lax.scan(jax.checkpoint(moe_layer), x, weights)
    return jnp.mean(jnp.square((out - y).astype(jnp.float32)))


def local_step(weights, x, y, *, lr):
    loss, (g_router, g_wi, g_wo) = jax.value_and_grad(local_loss)(weights, x, y)
    g_router = lax.pmean(g_router, "ep")
    new = tuple(w - lr * g.astype(w.dtype) for w, g in zip(weights, (g_router, g_wi, g_wo)))
    return new, lax.pmean(loss, "ep")


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("ep",))
    specs = (P(), P(None, "ep", None, None), P(None, "ep", None, None))
    shapes = ((LAYERS, D, EXPERTS), (LAYERS, EXPERTS, D, FF), (LAYERS, EXPERTS, FF, D))
    weights = tuple(
        jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, p)) for s, p in zip(shapes, specs)
    )
    tokens = jax.ShapeDtypeStruct((TOKENS, D), jnp.bfloat16, sharding=NamedSharding(mesh, P("ep", None)))
    step = jax.shard_map(
        functools.partial(local_step, lr=1e-3),
        mesh=mesh,
        in_specs=(specs, P("ep", None), P("ep", None)),
        out_specs=(specs, P()),
        check_vma=False,
    )
    return jax.jit(step, donate_argnums=0), (weights, tokens, tokens)
