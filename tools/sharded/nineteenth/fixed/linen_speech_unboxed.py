# mypy: ignore-errors
"""Clean. The optimizer is initialised from the boxed parameters, its moments keep the axis names.

CTC speech recogniser (transformer encoder over log-mel frames) in linen with logical axis names; the rules
split the weights of the stored train state over four chips.
"""

from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

MELS, WIDTH, FFN, HEADS, LAYERS, CHARACTERS = 80, 768, 3072, 12, 6, 256
BATCH, FRAMES, LABELS = 16, 800, 96

RULES = (
    ("batch", "data"),
    ("embed", "data"),
    ("mlp", None),
    ("heads", None),
    ("mel", None),
    ("vocab", None),
    ("layers", None),
)


@flax.struct.dataclass
class TrainState:
    step: Any
    params: Any
    opt_state: Any


def dense(features, axes, name):
    init = nn.with_logical_partitioning(nn.initializers.xavier_uniform(), axes)
    return nn.Dense(features, use_bias=False, dtype=jnp.bfloat16, kernel_init=init, name=name)


def norm(name):
    init = nn.with_logical_partitioning(nn.initializers.ones, (None,))
    return nn.RMSNorm(dtype=jnp.bfloat16, scale_init=init, name=name)


class EncoderLayer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        b, t, d = x.shape
        y = norm("before_attention")(x)
        q, k, v = (dense(d, ("embed", "heads"), n)(y).reshape(b, t, HEADS, -1) for n in ("q", "k", "v"))
        y = nn.dot_product_attention(q, k, v).reshape(b, t, d)
        x = x + dense(d, ("heads", "embed"), "o")(y)
        y = nn.gelu(dense(FFN, ("embed", "mlp"), "up")(norm("before_mlp")(x)))
        x = x + dense(d, ("mlp", "embed"), "down")(y)
        return nn.with_logical_constraint(x, ("batch", None, None)), None


class Recogniser(nn.Module):
    @nn.compact
    def __call__(self, mel):
        b, t, _ = mel.shape
        x = mel.reshape(b, t // 4, 4 * MELS).astype(jnp.bfloat16)
        x = dense(WIDTH, ("mel", "embed"), "stem")(x)
        x = nn.with_logical_constraint(x, ("batch", None, None))
        layers = nn.scan(
            nn.remat(EncoderLayer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = layers(name="layers")(x, None)
        return dense(CHARACTERS, ("embed", "vocab"), "ctc")(norm("final")(x)).astype(jnp.float32)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("data",))
    model, tx = Recogniser(), optax.adamw(3e-4, b2=0.98)

    def init_state(key):
        params = model.init(key, jnp.zeros((1, FRAMES, MELS)))["params"]
        opt_state = tx.init(params)
        return TrainState(jnp.zeros((), jnp.int32), params, opt_state)

    boxed = jax.eval_shape(init_state, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    state = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), nn.unbox(boxed), shardings
    )

    def loss_fn(params, mel, labels):
        with mesh, nn.logical_axis_rules(RULES):
            logits = model.apply({"params": params}, mel)
        no_padding = jnp.zeros(logits.shape[:2])
        return optax.ctc_loss(logits, no_padding, labels, (labels == 0).astype(jnp.float32)).mean()

    def train_step(state, mel, labels):
        loss, grads = jax.value_and_grad(loss_fn)(state.params, mel, labels)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, opt_state), loss

    rows = NamedSharding(mesh, P("data"))
    mel = jax.ShapeDtypeStruct((BATCH, FRAMES, MELS), jnp.float32, sharding=rows)
    labels = jax.ShapeDtypeStruct((BATCH, LABELS), jnp.int32, sharding=rows)
    jitted = jax.jit(
        train_step, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P()))
    )
    return jitted, (state, mel, labels)
