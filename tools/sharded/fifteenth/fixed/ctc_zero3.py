# mypy: ignore-errors
"""Fixed."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
LAYERS, D, FF, TOKENS, MELS, FRAMES, BATCH, LABELS = 8, 512, 2048, 128, 80, 200, 16, 24


def gather(shards):
    return jax.tree.map(lambda w: lax.all_gather(w, "dp", axis=0, tiled=True), shards)


def conv_ff(w, x):
    """Macaron-style layer: half-step feed-forward, depthwise convolution over time, half-step feed-forward."""
    h = jax.nn.standardize(x)
    x = x + 0.5 * jax.nn.swish(h @ w["ff1_in"]) @ w["ff1_out"]
    h = jax.nn.standardize(x)
    padded = jnp.pad(h, ((0, 0), (3, 3), (0, 0)))
    mixed = sum(padded[:, i:i + x.shape[1]] * w["depthwise"][:, i] for i in range(7))
    x = x + jax.nn.swish(mixed) @ w["pointwise"]
    h = jax.nn.standardize(x)
    return x + 0.5 * jax.nn.swish(h @ w["ff2_in"]) @ w["ff2_out"]


def encoder(shards, x):
    layer = jax.checkpoint(lambda s, x: conv_ff(gather(s), x))

    def body(x, layer_shards):
        return layer(layer_shards, x), None

    x, _ = lax.scan(body, x, shards)
    return x


def local_loss(shards, mel, labels):
    x = mel @ gather(shards["stem"])
    x = encoder(shards["layers"], x)
    logits = x @ gather(shards["out"])
    none = jnp.zeros(mel.shape[:2]), jnp.zeros(labels.shape)
    return optax.ctc_loss(logits, none[0], labels, none[1]).mean()


def param_shapes():
    layer = {"ff1_in": (D, FF), "ff1_out": (FF, D), "depthwise": (D, 7), "pointwise": (D, D), "ff2_in": (D, FF), "ff2_out": (FF, D)}
    return {"stem": (MELS, D), "out": (D, TOKENS), "layers": {k: (LAYERS, *s) for k, s in layer.items()}}


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    is_shape = lambda s: isinstance(s, tuple)
    specs = {"stem": P("dp"), "out": P("dp"), "layers": jax.tree.map(lambda _: P(None, "dp"), param_shapes()["layers"], is_leaf=is_shape)}

    @partial(jax.jit, donate_argnums=(0, 1))
    @partial(jax.shard_map, mesh=mesh, in_specs=(specs, specs, P("dp"), P("dp")), out_specs=(specs, specs, P()), check_vma=False)
    def step(shards, momentum, mel, labels):
        loss, grads = jax.value_and_grad(local_loss)(shards, mel, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g / len(devices), momentum, grads)
        shards = jax.tree.map(lambda w, m: w - 1e-3 * m, shards, momentum)
        return shards, momentum, lax.pmean(loss, "dp")

    def placed(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    shards = jax.tree.map(placed, param_shapes(), specs, is_leaf=is_shape)
    mel = placed((BATCH, FRAMES, MELS), P("dp"))
    labels = placed((BATCH, LABELS), P("dp"), jnp.int32)
    return step, (shards, shards, mel, labels)
