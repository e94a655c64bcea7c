# mypy: ignore-errors
"""Clean. ZeRO-1: weights are whole by choice, Adam's moments and the gradients that feed them are split."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

MELS, WIDTH, LAYERS, PHONES = 80, 640, 6, 64
BATCH, FRAMES = 64, 128


def init(key):
    ks = jax.random.split(key, 5)

    def w(k, *shape):
        return jax.random.normal(k, shape) * shape[-2] ** -0.5

    return {
        "inp": w(ks[0], MELS, WIDTH),
        "gates": w(ks[1], LAYERS, WIDTH, 2 * WIDTH),
        "up": w(ks[2], LAYERS, WIDTH, 2 * WIDTH),
        "down": w(ks[3], LAYERS, 2 * WIDTH, WIDTH),
        "out": w(ks[4], WIDTH, PHONES),
    }


def min_gru(x, gates):
    """Minimal gated recurrence by a parallel scan over time."""
    z, h = jnp.split(x @ gates, 2, axis=-1)
    z = jax.nn.sigmoid(z)
    return jax.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1 - z, z * h), axis=1)[1]


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def forward(params, mels):
    @jax.checkpoint
    def layer(x, w):
        x = x + min_gru(norm(x), w["gates"])
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    x, _ = jax.lax.scan(layer, mels @ params["inp"], {k: params[k] for k in ("gates", "up", "down")})
    return norm(x) @ params["out"]


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    tx = optax.adamw(2e-3, weight_decay=0.01)
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))

    def zero1(a):
        """Splits the last dimension but one of every matrix; 80 and 640 divide by 8."""
        if a.ndim < 2:
            return whole
        return NamedSharding(mesh, P(*(None,) * (a.ndim - 2), "dp", None))

    params = jax.eval_shape(init, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    grad_shardings = jax.tree.map(zero1, params)
    opt_shardings = jax.tree.map(zero1, opt_state)
    param_shardings = jax.tree.map(lambda _: whole, params)

    def loss_fn(params, mels, phones):
        logits = forward(params, mels)
        return optax.softmax_cross_entropy_with_integer_labels(logits, phones).mean()

    def step(params, opt_state, mels, phones):
        loss, grads = jax.value_and_grad(loss_fn)(params, mels, phones)
        grads = jax.lax.with_sharding_constraint(grads, grad_shardings)
        shards = jax.lax.with_sharding_constraint(params, grad_shardings)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, loss

    def place(tree, shardings):
        return jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), tree, shardings)

    mels = jax.ShapeDtypeStruct((BATCH, FRAMES, MELS), jnp.float32, sharding=rows)
    phones = jax.ShapeDtypeStruct((BATCH, FRAMES), jnp.int32, sharding=rows)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(param_shardings, opt_shardings, whole))
    return fn, (place(params, param_shardings), place(opt_state, opt_shardings), mels, phones)
