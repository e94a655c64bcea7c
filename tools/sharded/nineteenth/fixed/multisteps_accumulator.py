# mypy: ignore-errors
"""Clean. The gradient accumulator of optax.MultiSteps takes the parameters' specs like the moments.

Masked language model over protein sequences, 16 chips fully sharded, gradients accumulated over 8 steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.tree_util import DictKey, GetAttrKey, tree_map_with_path

TARGET = "tpu-v5e:4x4"

AMINO_ACIDS, WIDTH, FFN, LAYERS, HEADS = 33, 640, 2560, 12, 10
BATCH, LENGTH, ACCUMULATE = 128, 512, 8

PARAM_SPECS = {
    "embed": P(None, "fsdp"),
    "layers": {
        "qkv": P(None, "fsdp", None),
        "out": P(None, "fsdp", None),
        "up": P(None, "fsdp", None),
        "down": P(None, "fsdp", None),
        "scale": P(),
    },
    "final_scale": P(),
}
PARAM_SHAPES = {
    "embed": (AMINO_ACIDS, WIDTH),
    "layers": {
        "qkv": (LAYERS, WIDTH, 3 * WIDTH),
        "out": (LAYERS, WIDTH, WIDTH),
        "up": (LAYERS, WIDTH, FFN),
        "down": (LAYERS, FFN, WIDTH),
        "scale": (LAYERS, 2, WIDTH),
    },
    "final_scale": (WIDTH,),
}
LIKE_PARAMS = ("mu", "nu", "acc_grads")


def spec_of_state(path, _leaf):
    """Fields shaped like the parameters take the parameter's spec, counters are whole."""
    fields = [k.name for k in path if isinstance(k, GetAttrKey)]
    if not any(field in LIKE_PARAMS for field in fields):
        return P()
    spec = PARAM_SPECS
    for k in path:
        if isinstance(k, DictKey):
            spec = spec[k.key]
    return spec


def rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def loss_fn(params, residues, masked, rows):
    def pin(x):
        return jax.lax.with_sharding_constraint(x, rows)

    table = params["embed"].astype(jnp.bfloat16)
    x = pin(table[jnp.where(masked, AMINO_ACIDS - 1, residues)])

    @jax.checkpoint
    def layer(x, p):
        b, t, d = x.shape
        qkv = rms(x, p["scale"][0]) @ p["qkv"].astype(x.dtype)
        q, k, v = (y.reshape(b, t, HEADS, -1) for y in jnp.split(qkv, 3, axis=-1))
        y = jax.nn.dot_product_attention(q, k, v).reshape(b, t, d)
        x = x + y @ p["out"].astype(x.dtype)
        y = jax.nn.gelu(rms(x, p["scale"][1]) @ p["up"].astype(x.dtype))
        return pin(x + y @ p["down"].astype(x.dtype)), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    logits = (rms(x, params["final_scale"]) @ table.T).astype(jnp.float32)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, residues)
    return jnp.sum(nll * masked) / jnp.maximum(masked.sum(), 1)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(16), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp"))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 4e-4, 2000, 500_000)
    tx = optax.MultiSteps(optax.adamw(schedule, b2=0.98, weight_decay=0.01), every_k_schedule=ACCUMULATE)

    def put(x, spec):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32), PARAM_SHAPES, is_leaf=lambda s: isinstance(s, tuple)
    )
    opt_state = jax.eval_shape(tx.init, params)
    opt_state = jax.tree.map(put, opt_state, tree_map_with_path(spec_of_state, opt_state))
    params = jax.tree.map(put, params, PARAM_SPECS)
    out = jax.tree.map(lambda x: x.sharding, (params, opt_state))

    def train_step(params, opt_state, residues, masked):
        loss, grads = jax.value_and_grad(loss_fn)(params, residues, masked, rows)
        grads = jax.lax.with_sharding_constraint(grads, out[0])
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    batch = (
        jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=rows),
        jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.bool_, sharding=rows),
    )
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*out, NamedSharding(mesh, P())))
    return step, (params, opt_state, *batch)
