# mypy: ignore-errors
"""Clean. A language model's training step under FSDP; each block gathers its own weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

HP = {
    "layers": 6,
    "width": 1024,
    "heads": 16,
    "ffn": 2816,
    "vocab": 32000,
    "batch": 32,
    "length": 512,
    "lr": 2e-4,
    "beta1": 0.9,
    "beta2": 0.95,
}
AXIS = "fsdp"


def weight_shapes():
    d, f = HP["width"], HP["ffn"]
    layer = {"qkv": (d, 3 * d), "proj": (d, d), "gate": (d, f), "up": (d, f), "down": (f, d)}
    return {
        "embed": (HP["vocab"], d),
        "head": (d, HP["vocab"]),
        "layers": {name: (HP["layers"], *shape) for name, shape in layer.items()},
    }


SPECS = {
    "embed": P(AXIS, None),
    "head": P(AXIS, None),
    "layers": dict.fromkeys(weight_shapes()["layers"], P(None, AXIS, None)),
}


def gather(shard):
    """The whole of a weight in bfloat16; its transpose scatters the gradient's sum."""
    return lax.all_gather(shard.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)


def norm(x):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def attention(x, weights):
    b, t, d = x.shape
    qkv = (x @ weights["qkv"]).reshape(b, t, 3, HP["heads"], d // HP["heads"])
    q, k, v = (qkv[:, :, i] for i in range(3))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return y.reshape(b, t, d) @ weights["proj"]


@partial(jax.checkpoint, prevent_cse=False)
def block(x, shards):
    weights = jax.tree.map(gather, shards)
    x += attention(norm(x), weights)
    h = norm(x)
    return x + (jax.nn.silu(h @ weights["gate"]) * (h @ weights["up"])) @ weights["down"]


def scan_body(x, shards):
    return block(x, shards), None


@partial(jax.checkpoint, prevent_cse=False)
def token_losses(x, head, targets):
    logits = (x @ gather(head)).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


def local_loss(params, tokens):
    x = jax.checkpoint(lambda table: gather(table)[tokens[:, :-1]])(params["embed"])
    x, _ = lax.scan(scan_body, x, params["layers"])
    losses = token_losses(norm(x), params["head"], tokens[:, 1:])
    return jnp.sum(losses) / (HP["batch"] * HP["length"])


def adam(param, grad, mean, square, count):
    mean = HP["beta1"] * mean + (1 - HP["beta1"]) * grad
    square = HP["beta2"] * square + (1 - HP["beta2"]) * grad * grad
    scale = jnp.sqrt(1 - HP["beta2"] ** count) / (1 - HP["beta1"] ** count)
    return param - HP["lr"] * scale * mean / (jnp.sqrt(square) + 1e-8), mean, square


def train_step(state, tokens):
    loss, grads = jax.value_and_grad(local_loss)(state["params"], tokens)
    count = state["count"] + 1
    update = partial(adam, count=count.astype(jnp.float32))
    moved = jax.tree.map(update, state["params"], grads, state["mean"], state["square"])
    params, mean, square = jax.tree.transpose(
        jax.tree.structure(grads), jax.tree.structure((0, 0, 0)), moved
    )
    new = {"params": params, "mean": mean, "square": square, "count": count}
    return new, lax.psum(loss, AXIS)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    specs = {"params": SPECS, "mean": SPECS, "square": SPECS, "count": P()}

    def array(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    shapes = weight_shapes()
    is_shape = lambda s: isinstance(s, tuple)  # noqa: E731
    params = jax.tree.map(array, shapes, SPECS, is_leaf=is_shape)
    state = {"params": params, "mean": params, "square": params}
    state["count"] = array((), P(), jnp.int32)
    tokens = array((HP["batch"], HP["length"] + 1), P(AXIS), jnp.int32)
    step = jax.shard_map(
        train_step, mesh=mesh, in_specs=(specs, P(AXIS)), out_specs=(specs, P())
    )
    return jax.jit(step, donate_argnums=0), (state, tokens)
