# mypy: ignore-errors
"""Fixed."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, MLP, HEADS, LAYERS = 8192, 512, 2048, 4, 4
BATCH, SEQ = 16, 4096

RULES = (
    ("activation_batch", "data"),
    ("activation_seq", "seq"),
    ("embed", "data"),
    ("mlp", "seq"),
    ("vocab", "seq"),
    ("heads", "seq"),
)


def weight(module, name, shape, axes):
    init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), axes)
    return module.param(name, init, shape, jnp.float32).astype(jnp.bfloat16)


def divide(x):
    """Sequence parallelism: the residual stream is divided over both mesh axes."""
    return nn.with_logical_constraint(x, ("activation_batch", "activation_seq", None))


class Mixer(nn.Module):
    """Gated linear attention: a decayed sum over the past, in chunks."""

    @nn.compact
    def __call__(self, x):
        qkv = weight(self, "qkv", (DIM, 3 * DIM), ("embed", "heads"))
        out = weight(self, "out", (DIM, DIM), ("heads", "embed"))
        b, t, _ = x.shape
        q, k, v = jnp.split((x @ qkv).reshape(b, t, 3 * HEADS, -1), 3, axis=2)
        state = jnp.einsum("bthk,bthv->bhkv", nn.elu(k) + 1, v) / t
        return jnp.einsum("bthk,bhkv->bthv", nn.elu(q) + 1, state).reshape(b, t, DIM) @ out


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x = divide(x)
        x = x + Mixer()(nn.RMSNorm(use_scale=False, dtype=x.dtype)(x))
        up = weight(self, "up", (DIM, MLP), ("embed", "mlp"))
        down = weight(self, "down", (MLP, DIM), ("mlp", "embed"))
        h = nn.RMSNorm(use_scale=False, dtype=x.dtype)(x)
        return x + nn.gelu(h @ up) @ down, None


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = weight(self, "table", (VOCAB, DIM), ("vocab", "embed"))
        x = divide(table[tokens])
        stack = nn.scan(
            nn.remat(Layer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = stack()(x, None)
        return divide(nn.RMSNorm(use_scale=False, dtype=x.dtype)(x)) @ table.T


def train_step(params, opt_state, batch, *, tx):
    def loss_fn(params):
        logits = Model().apply({"params": params}, batch["tokens"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "seq"))
    tx = optax.adam(1e-3)
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32)

    def init(key):
        params = Model().init(key, jnp.zeros(tokens.shape, jnp.int32))["params"]
        return params, tx.init(params)

    boxed = jax.eval_shape(init, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    params, opt_state = nn.meta.unbox(boxed)
    rows = NamedSharding(mesh, P("data", None))

    def step(*args):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(RULES):
            return train_step(*args, tx=tx)

    fn = jax.jit(
        step,
        in_shardings=(*shardings, rows),
        out_shardings=(*shardings, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return fn, (params, opt_state, {"tokens": tokens, "labels": tokens})
