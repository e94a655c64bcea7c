# mypy: ignore-errors
"""Clean. Training step of a decoder-only language model in flax linen: logical axis names, scanned and
rematerialised layers, parameters split over both mesh axes, the residual stream split by sequence, AdamW.
"""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

LAYERS, DIM, HIDDEN, HEADS, HEAD_DIM, VOCAB = 8, 1024, 4096, 16, 64, 32_000
BATCH, LENGTH = 8, 512

RULES = (
    ("batch", "data"),
    ("length", None),
    ("residual_length", "model"),
    ("act_embed", None),
    ("embed", "data"),
    ("mlp", "model"),
    ("heads", "model"),
    ("head_dim", None),
    ("vocab", "model"),
    ("layers", None),
)


def weight(module, name, shape, axes):
    init = nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)
    return module.param(name, init, shape, jnp.float32)


def constrain(mesh, x, *axes):
    return nn.with_logical_constraint(x, axes, rules=RULES, mesh=mesh)


def rms_norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


class Block(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, h, _):
        qkv = weight(self, "qkv", (DIM, 3, HEADS, HEAD_DIM), ("embed", None, "heads", "head_dim"))
        out = weight(self, "out", (HEADS, HEAD_DIM, DIM), ("heads", "head_dim", "embed"))
        x = constrain(self.mesh, rms_norm(h), "batch", "length", "act_embed")
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, qkv), 2, 0)
        q = constrain(self.mesh, q, "batch", "length", "heads", "head_dim")
        scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(HEAD_DIM)
        causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        attended = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(jnp.where(causal, scores, -1e9)), v)
        mixed = jnp.einsum("bqhk,hkd->bqd", attended, out)
        h = h + constrain(self.mesh, mixed, "batch", "residual_length", "act_embed")

        up = weight(self, "up", (DIM, HIDDEN), ("embed", "mlp"))
        down = weight(self, "down", (HIDDEN, DIM), ("mlp", "embed"))
        x = constrain(self.mesh, rms_norm(h), "batch", "length", "act_embed")
        inner = constrain(self.mesh, jax.nn.gelu(x @ up), "batch", "length", "mlp")
        return constrain(self.mesh, h + inner @ down, "batch", "residual_length", "act_embed"), None


@functools.partial(jax.checkpoint, static_argnums=0)
def embed(mesh, table, tokens):
    rows = constrain(mesh, table, "vocab", "act_embed")
    return constrain(mesh, rows[tokens], "batch", "residual_length", "act_embed")


@functools.partial(jax.checkpoint, static_argnums=0)
def logits_of(mesh, table, h):
    rows = constrain(mesh, table, "vocab", "act_embed")
    x = constrain(mesh, rms_norm(h), "batch", "length", "act_embed")
    return constrain(mesh, x @ rows.T, "batch", "length", "vocab")


class Decoder(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        table = weight(self, "embedding", (VOCAB, DIM), ("vocab", "embed"))
        h = embed(self.mesh, table, tokens)
        stack = nn.scan(
            nn.remat(Block, prevent_cse=False), variable_axes={"params": 0}, split_rngs={"params": True},
            length=LAYERS, in_axes=nn.broadcast, metadata_params={nn.PARTITION_NAME: "layers"})
        h, _ = stack(self.mesh, name="layers")(h, None)
        return logits_of(self.mesh, table, h)


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("data", "model"))
    model = Decoder(mesh)
    optimizer = optax.adamw(3e-4)
    whole = NamedSharding(mesh, P())

    def loss_fn(params, tokens, targets):
        logits = model.apply({"params": params}, tokens)
        label = jnp.sum(jnp.where(jnp.arange(VOCAB) == targets[..., None], logits, 0.0), axis=-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - label)

    def train_step(params, opt_state, tokens, targets):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    boxed = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32))["params"]
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), nn.meta.unbox(boxed), shardings)
    opt_state = optax.tree_map_params(
        optimizer, lambda x, p: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=p.sharding),
        jax.eval_shape(optimizer.init, params), params,
        transform_non_params=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole))
    by_example = NamedSharding(mesh, P("data", None))
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=by_example)
    where = jax.tree.map(lambda x: x.sharding, (params, opt_state))
    step = jax.jit(train_step, out_shardings=(*where, whole), donate_argnums=(0, 1))
    return step, (params, opt_state, tokens, tokens)
