# mypy: ignore-errors
"""Clean. The only row for `embed` splits the parameters over `fsdp`.

Masked modelling of health records (codes of diagnoses, drugs and laboratory values, with the age at each
visit): a flax linen encoder with logical axis names, scanned layers and AdamW.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen import partitioning as nn_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CODES, DIM, HIDDEN, HEADS, LAYERS = 24_576, 1024, 4096, 16, 8
PATIENTS, EVENTS = 32, 256

LOGICAL_RULES = (
    ("patient", ("fsdp",)),
    ("event", None),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
    ("layers", None),
)


def kernel(*names):
    return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        dense = functools.partial(nn.Dense, use_bias=False, dtype=jnp.bfloat16)
        b, t, d = x.shape
        y = nn.LayerNorm(dtype=jnp.bfloat16, use_bias=False, use_scale=False)(x)
        q, k, v = (dense(DIM, kernel_init=kernel("embed", "heads"), name=n)(y) for n in ("query", "key", "value"))
        q, k, v = (z.reshape(b, t, HEADS, -1) for z in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, mask=mask[:, None, None, :]).reshape(b, t, d)
        x = x + dense(DIM, kernel_init=kernel("heads", "embed"), name="output")(y)
        y = nn.LayerNorm(dtype=jnp.bfloat16, use_bias=False, use_scale=False)(x)
        y = nn.gelu(dense(HIDDEN, kernel_init=kernel("embed", "mlp"), name="up")(y))
        y = nn.with_logical_constraint(y, ("patient", "event", "mlp"))
        x = x + dense(DIM, kernel_init=kernel("mlp", "embed"), name="down")(y)
        return nn.with_logical_constraint(x, ("patient", "event", None)), None


class RecordEncoder(nn.Module):
    @nn.compact
    def __call__(self, codes, ages):
        init = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed"))
        embed = nn.Embed(CODES, DIM, embedding_init=init, dtype=jnp.bfloat16)
        angle = ages[..., None] * jnp.exp(-jnp.linspace(0.0, 6.0, DIM // 2))
        x = embed(codes) + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1).astype(jnp.bfloat16)
        x = nn.with_logical_constraint(x, ("patient", "event", None))
        layers = nn.scan(
            nn.remat(Layer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = layers(name="layers")(x, codes > 0)
        return nn.with_logical_constraint(embed.attend(x), ("patient", "event", "vocab"))


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("fsdp", "tensor"))
    model = RecordEncoder()
    tx = optax.adamw(1e-4, weight_decay=0.05)
    codes = jax.ShapeDtypeStruct((PATIENTS, EVENTS), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    ages = jax.ShapeDtypeStruct((PATIENTS, EVENTS), jnp.float32, sharding=codes.sharding)

    def init(codes, ages):
        params = model.init(jax.random.key(0), codes, ages)["params"]
        return params, tx.init(params)

    def train_step(params, opt_state, codes, ages, labels):
        with mesh, nn_partitioning.axis_rules(LOGICAL_RULES):

            def loss_fn(params):
                logits = model.apply({"params": params}, codes, ages).astype(jnp.float32)
                losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
                return jnp.sum(losses * (labels >= 0)) / jnp.maximum(jnp.sum(labels >= 0), 1)

            loss, grads = jax.value_and_grad(loss_fn)(params)
            grads = jax.lax.with_sharding_constraint(grads, state_shardings[0])
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, loss

    boxed = jax.eval_shape(init, codes, ages)
    state_shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, LOGICAL_RULES)
    state = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), nn.unbox(boxed), state_shardings
    )
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*state_shardings, NamedSharding(mesh, P())))
    return step, (*state, codes, ages, codes)
