# mypy: ignore-errors
"""Clean. A masked language model's training step, split by logical axis rules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, WIDTH, HEADS, FFN, VOCAB = 8, 1024, 16, 4096, 32768
BATCH, LENGTH = 32, 256

RULES = (
    ("batch", "data"),
    ("length", "tensor"),
    ("embed", "data"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("vocab", "tensor"),
    ("kv", None),
    ("layers", None),
)


def kernel(*axes, fan_in):
    return nn.with_logical_partitioning(nn.initializers.normal(fan_in**-0.5), axes)


class SelfAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        shape = (WIDTH, 3, HEADS, WIDTH // HEADS)
        qkv = self.param("qkv", kernel("embed", None, "heads", "kv", fan_in=WIDTH), shape)
        q, k, v = jnp.moveaxis(jnp.einsum("bld,dchk->cblhk", x, qkv.astype(x.dtype)), 0, 0)
        q = nn.with_logical_constraint(q, ("batch", None, "heads", "kv"))
        y = jax.nn.dot_product_attention(q, k, v)
        out_init = kernel("heads", "kv", "embed", fan_in=WIDTH)
        out = self.param("out", out_init, (HEADS, WIDTH // HEADS, WIDTH))
        return jnp.einsum("blhk,hkd->bld", y, out.astype(x.dtype))


class FeedForward(nn.Module):
    @nn.compact
    def __call__(self, x):
        wi = self.param("wi", kernel("embed", "mlp", fan_in=WIDTH), (WIDTH, FFN))
        gate = self.param("gate", kernel("embed", "mlp", fan_in=WIDTH), (WIDTH, FFN))
        wo = self.param("wo", kernel("mlp", "embed", fan_in=FFN), (FFN, WIDTH))
        h = nn.gelu(x @ gate.astype(x.dtype)) * (x @ wi.astype(x.dtype))
        return h @ wo.astype(x.dtype)


class EncoderLayer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        scale = nn.with_logical_partitioning(nn.initializers.ones, (None,))
        x += SelfAttention()(nn.RMSNorm(dtype=x.dtype, scale_init=scale)(x))
        x += FeedForward()(nn.RMSNorm(dtype=x.dtype, scale_init=scale)(x))
        return nn.with_logical_constraint(x, ("batch", "length", None)), None


class MaskedLM(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = self.param("embed", kernel("vocab", "embed", fan_in=WIDTH), (VOCAB, WIDTH))
        x = jnp.take(table.astype(jnp.bfloat16), tokens, axis=0)
        x = nn.with_logical_constraint(x, ("batch", "length", None))
        stack = nn.scan(
            nn.remat(EncoderLayer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = stack(name="layers")(x, None)
        logits = jnp.einsum("bld,vd->blv", x, table.astype(x.dtype))
        return nn.with_logical_constraint(logits, ("batch", None, "vocab"))


def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["tokens"]).astype(jnp.float32)
        hit = jax.nn.one_hot(batch["targets"], VOCAB, dtype=jnp.float32)
        nll = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(logits * hit, axis=-1)
        return jnp.sum(nll * batch["masked"]) / jnp.maximum(jnp.sum(batch["masked"]), 1.0)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "tensor"))
    model, tx = MaskedLM(), optax.adamw(3e-4, weight_decay=0.01)

    def create(key, tokens):
        params = model.init(key, tokens)["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    abstract = jax.eval_shape(create, jax.random.key(0), tokens)
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, RULES)
    place = lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)  # noqa: E731
    state = jax.tree.map(place, nn.unbox(abstract), shardings)
    rows = NamedSharding(mesh, P("data"))
    batch = {name: place(tokens, rows) for name in ("tokens", "targets", "masked")}

    def step(state, batch):
        with mesh, nn.logical_axis_rules(RULES):
            return train_step(state, batch)

    out = (shardings, NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=0, out_shardings=out), (state, batch)
