# mypy: ignore-errors
"""Clean. Tensor and sequence parallelism: between the matrix products the stream is split by position, inside them by
hidden unit, and Adam's state follows the weights on both axes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, FF, LAYERS = 16_384, 1024, 8192, 8
BATCH, SEQ = 32, 512


def table():
    """name -> (shape, spec)"""
    return {
        "embed": ((VOCAB, DIM), P("tp", "dp")),
        "shift": ((LAYERS, 4, DIM), P()),
        "gate": ((LAYERS, DIM, FF), P(None, "dp", "tp")),
        "up": ((LAYERS, DIM, FF), P(None, "dp", "tp")),
        "down": ((LAYERS, FF, DIM), P(None, "tp", "dp")),
    }


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def token_shift(x, taps):
    """Causal depthwise mixing of four positions."""
    past = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return sum(past[:, i : i + x.shape[1]] * taps[i] for i in range(4))


class Pins:
    def __init__(self, mesh):
        self.stream = NamedSharding(mesh, P("dp", "tp", None))
        self.joined = NamedSharding(mesh, P("dp", None, None))
        self.hidden = NamedSharding(mesh, P("dp", None, "tp"))

    def __call__(self, x, where):
        return jax.lax.with_sharding_constraint(x, getattr(self, where))


def forward(params, tokens, pin):
    x = pin(params["embed"].astype(jnp.bfloat16)[tokens], "stream")

    @jax.checkpoint
    def layer(x, w):
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        y = pin(norm(x), "joined")
        y = y + token_shift(y, w["shift"])
        h = pin(jax.nn.silu(y @ w["gate"]) * (y @ w["up"]), "hidden")
        return pin(x + pin(h @ w["down"], "stream"), "stream"), None

    x, _ = jax.lax.scan(layer, x, {k: params[k] for k in ("shift", "gate", "up", "down")})
    y = pin(norm(x), "joined")
    return pin(y @ params["embed"].T.astype(y.dtype), "hidden").astype(jnp.float32)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "tp"))
    pin = Pins(mesh)
    tx = optax.adamw(3e-4, b2=0.95)
    scalar = NamedSharding(mesh, P())

    params = {
        k: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for k, (shape, spec) in table().items()
    }
    shardings = {k: a.sharding for k, a in params.items()}
    opt_shapes = jax.eval_shape(tx.init, params)
    opt_shardings = optax.tree_map_params(
        tx, lambda _, s: s, opt_shapes, shardings, transform_non_params=lambda _: scalar)
    opt = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), opt_shapes, opt_shardings)

    def loss_fn(params, tokens, targets):
        logits = forward(params, tokens, pin)
        picked = jnp.sum(jnp.where(jnp.arange(VOCAB) == targets[..., None], logits, 0.0), axis=-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    def step(params, opt, tokens, targets):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=NamedSharding(mesh, P("dp", None)))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, opt_shardings, scalar))
    return fn, (params, opt, tokens, tokens)
