# mypy: ignore-errors
"""Clean. The logical batch axis is mapped to "data" and "fsdp" together.

Span-corruption pretraining of a T5-like encoder with a denoising head, flax linen with logical axis
names on parameters and activations; one rule table maps the names to the mesh (data, fsdp, tensor).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

RULES = (
    ("batch", ("data", "fsdp")),
    ("length", None),
    ("kv_length", None),
    ("embed", "fsdp"),
    ("mlp", "tensor"),
    ("heads", "tensor"),
    ("kv", None),
    ("vocab", "tensor"),
    ("relpos", None),
    ("layers", None),
    ("act_embed", None),
    ("act_mlp", "tensor"),
    ("act_heads", "tensor"),
)

VOCAB, EMBED, MLP, HEADS, KV, LAYERS = 16_384, 768, 2048, 12, 64, 6
BATCH, LENGTH, BUCKETS = 32, 256, 32


def param(module, name, shape, axes, scale=0.02):
    init = nn.with_logical_partitioning(nn.initializers.normal(scale), axes)
    return module.param(name, init, shape, jnp.float32).astype(jnp.bfloat16)


class Constrained(nn.Module):
    """Base of the modules that annotate activations with logical names."""

    mesh: Mesh

    def shard(self, x, *axes):
        return nn.with_logical_constraint(x, axes, rules=RULES, mesh=self.mesh)


class RMSScale(nn.Module):
    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.with_logical_partitioning(nn.initializers.ones, ("act_embed",)), (x.shape[-1],))
        y = x.astype(jnp.float32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


class SelfAttention(Constrained):
    @nn.compact
    def __call__(self, x, bias, mask):
        def project(name):
            w = param(self, name, (EMBED, HEADS, KV), ("embed", "heads", "kv"))
            return self.shard(jnp.einsum("bte,ehk->bthk", x, w), "batch", "length", "act_heads", "kv")

        q, k, v = project("query"), project("key"), project("value")
        logits = jnp.einsum("bqhk,bshk->bhqs", q, k).astype(jnp.float32) + bias
        logits = jnp.where(mask[:, None, None, :], logits, -1e9)
        probs = nn.softmax(self.shard(logits, "batch", "act_heads", "length", "kv_length")).astype(v.dtype)
        y = jnp.einsum("bhqs,bshk->bqhk", probs, v)
        wo = param(self, "out", (HEADS, KV, EMBED), ("heads", "kv", "embed"))
        return self.shard(jnp.einsum("bqhk,hke->bqe", y, wo), "batch", "length", "act_embed")


class GatedMlp(Constrained):
    @nn.compact
    def __call__(self, x):
        wi0 = param(self, "wi_0", (EMBED, MLP), ("embed", "mlp"))
        wi1 = param(self, "wi_1", (EMBED, MLP), ("embed", "mlp"))
        h = self.shard(nn.gelu(x @ wi0) * (x @ wi1), "batch", "length", "act_mlp")
        return self.shard(h @ param(self, "wo", (MLP, EMBED), ("mlp", "embed")), "batch", "length", "act_embed")


class EncoderLayer(Constrained):
    @nn.compact
    def __call__(self, x, bias, mask):
        x = x + SelfAttention(self.mesh, name="attention")(RMSScale(name="pre_attention")(x), bias, mask)
        x = x + GatedMlp(self.mesh, name="mlp")(RMSScale(name="pre_mlp")(x))
        return self.shard(x, "batch", "length", "act_embed"), None


class Encoder(Constrained):
    @nn.compact
    def __call__(self, tokens):
        mask = tokens != 0
        table = param(self, "embedding", (VOCAB, EMBED), ("vocab", "embed"), 1.0)
        x = self.shard(table[tokens], "batch", "length", "act_embed")
        relpos = param(self, "relpos", (HEADS, BUCKETS), ("heads", "relpos"))
        offset = jnp.arange(LENGTH)[None, :] - jnp.arange(LENGTH)[:, None]
        bias = relpos[:, jnp.clip(offset // 8 + BUCKETS // 2, 0, BUCKETS - 1)].astype(jnp.float32)
        layers = nn.scan(
            nn.remat(EncoderLayer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = layers(self.mesh, name="layers")(x, bias, mask)
        x = RMSScale(name="final")(x)
        head = param(self, "head", (EMBED, VOCAB), ("embed", "vocab"))
        return self.shard((x @ head).astype(jnp.float32), "batch", "length", "vocab")


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4, 2), ("data", "fsdp", "tensor"))
    model = Encoder(mesh)
    tx = optax.adamw(1e-3, b2=0.98)
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    boxed = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    boxed_state = jax.eval_shape(tx.init, boxed)

    def resolve(tree):
        logical = nn.get_partition_spec(tree)
        shardings = nn.logical_to_mesh_sharding(logical, mesh, RULES)
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s if x.ndim else NamedSharding(mesh, P())),
            nn.meta.unbox(tree),
            shardings,
        )

    params, opt_state = resolve(boxed), resolve(boxed_state)
    on = NamedSharding(mesh, nn.logical_to_mesh_axes(("batch", "length"), RULES))

    def step(params, opt_state, tokens, targets):
        def loss_fn(p):
            logits = model.apply({"params": p}, tokens)
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            return jnp.sum(nll * (targets != 0)) / jnp.maximum(jnp.sum(targets != 0), 1)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    out = jax.tree.map(lambda x: x.sharding, (params, opt_state))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, NamedSharding(mesh, P())))
    tokens = jax.ShapeDtypeStruct(tokens.shape, tokens.dtype, sharding=on)
    return fn, (params, opt_state, tokens, tokens)
