# mypy: ignore-errors
"""Fault: padding. A model with nine attention heads splits its scores by head over eight devices, so every device holds two heads and 7 of 16 are padding; the query positions would split evenly."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

HEADS, HEAD_DIM = 9, 64
WIDTH = HEADS * HEAD_DIM
HIDDEN = 1536
BATCH, LENGTH, LAYERS = 4, 1024, 2

ACTIVATIONS = {
    "residual": P(None, "tp", None),
    "query": P(None, "tp", None, None),
    "scores": P(None, None, "tp", None),
    "hidden": P(None, None, "tp"),
}


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def make_layer(mesh):
    def act(name, x):
        return with_sharding_constraint(x, NamedSharding(mesh, ACTIVATIONS[name]))

    def attend(w, h):
        q = act("query", jnp.einsum("bsd,dhk->bshk", h, w["q"]))
        k = jnp.einsum("bsd,dhk->bshk", h, w["k"])
        v = jnp.einsum("bsd,dhk->bshk", h, w["v"])
        scores = act("scores", jnp.einsum("bqhk,bshk->bhqs", q, k) * HEAD_DIM**-0.5)
        causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        probs = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
        mixed = jnp.einsum("bhqs,bshk->bqhk", act("scores", probs), v)
        return jnp.einsum("bqhk,hkd->bqd", mixed, w["o"])

    def layer(w, x):
        x = act("residual", x + attend(w, rms(x)))
        hidden = act("hidden", jax.nn.silu(rms(x) @ w["up"]))
        return act("residual", x + hidden @ w["down"])

    return layer


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("tp",))
    layer = make_layer(mesh)

    def loss_fn(params, x, y):
        for w in params:
            x = layer(w, x)
        return jnp.mean((x - y) ** 2)

    def distil(params, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    def struct(shape, *axes):
        return jax.ShapeDtypeStruct(
            shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes))
        )

    projection = struct((WIDTH, HEADS, HEAD_DIM), "tp")
    weights = {
        "q": projection,
        "k": projection,
        "v": projection,
        "o": struct((HEADS, HEAD_DIM, WIDTH), None, None, "tp"),
        "up": struct((WIDTH, HIDDEN), None, "tp"),
        "down": struct((HIDDEN, WIDTH), "tp"),
    }
    params = [dict(weights) for _ in range(LAYERS)]
    x = struct((BATCH, LENGTH, WIDTH), *ACTIVATIONS["residual"])
    return jax.jit(distil, donate_argnums=0), (params, x, x)
