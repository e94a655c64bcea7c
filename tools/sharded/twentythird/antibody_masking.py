# mypy: ignore-errors
"""Clean. Masked-residue training of a flax (linen) encoder on antibody sequences: layers in a scan with remat, batch
over two axes, weights split over "fsdp" and "tensor", and the moments laid out as the weights."""
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Config:
    layers: int = 16
    dim: int = 1024
    hidden: int = 4096
    heads: int = 16
    residues: int = 32
    batch: int = 64
    length: int = 256


RULES = (
    ("layer", None),
    ("sequence", ("data", "fsdp")),
    ("position", None),
    ("embed", "fsdp"),
    ("head", "tensor"),
    ("hidden", "tensor"),
    ("residue", None),
    ("width", None),
)


def dense(features, names, name):
    init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)
    return nn.Dense(features, use_bias=False, kernel_init=init, dtype=jnp.bfloat16, name=name)


class Layer(nn.Module):
    config: Config
    mesh: Mesh

    def place(self, x, *names):
        return nn.with_logical_constraint(x, names, rules=RULES, mesh=self.mesh)

    @nn.compact
    def __call__(self, x, mask):
        c = self.config
        y = nn.RMSNorm(dtype=jnp.bfloat16)(x)
        split = (*x.shape[:2], c.heads, c.dim // c.heads)
        parts = [dense(c.dim, ("embed", "head"), name)(y).reshape(split) for name in ("query", "key", "value")]
        parts = [self.place(p, "sequence", "position", "head", None) for p in parts]
        y = jax.nn.dot_product_attention(*parts, mask=mask).reshape(x.shape)
        x = x + dense(c.dim, ("head", "embed"), "out")(y)
        x = self.place(x, "sequence", "position", "width")
        y = dense(c.hidden, ("embed", "hidden"), "up")(nn.RMSNorm(dtype=jnp.bfloat16)(x))
        y = self.place(nn.gelu(y), "sequence", "position", "hidden")
        x = x + dense(c.dim, ("hidden", "embed"), "down")(y)
        return self.place(x, "sequence", "position", "width"), None


class Encoder(nn.Module):
    config: Config
    mesh: Mesh

    @nn.compact
    def __call__(self, residues):
        c = self.config
        table = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("residue", "embed"))
        x = nn.Embed(c.residues, c.dim, embedding_init=table, dtype=jnp.bfloat16)(residues)
        x = nn.with_logical_constraint(x, ("sequence", "position", "width"), rules=RULES, mesh=self.mesh)
        mask = (residues != 0)[:, None, None, :]
        stacked = nn.scan(
            nn.remat(Layer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=c.layers,
            metadata_params={nn.PARTITION_NAME: "layer"},
        )
        x, _ = stacked(c, self.mesh, name="layers")(x, mask)
        return dense(c.residues, ("embed", "residue"), "logits")(nn.RMSNorm(dtype=jnp.bfloat16)(x))


def make_clean(devices):
    config = Config()
    mesh = Mesh(np.asarray(devices).reshape(2, 4, 2), ("data", "fsdp", "tensor"))
    encoder, optimizer = Encoder(config, mesh), optax.adamw(2e-4, b2=0.98)

    def create(key):
        params = encoder.init(key, jnp.zeros((config.batch, config.length), jnp.int32))["params"]
        return params, optimizer.init(params)

    boxed = jax.eval_shape(create, jax.random.key(0))
    layout = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)

    def loss_fn(params, masked, truth):
        logits = encoder.apply({"params": params}, masked).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, truth)
        hidden = (masked == 1).astype(jnp.float32)
        return jnp.sum(losses * hidden) / jnp.maximum(hidden.sum(), 1.0)

    def step(params, state, masked, truth):
        loss, grads = jax.value_and_grad(loss_fn)(params, masked, truth)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def place(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    params, state = jax.tree.map(place, nn.unbox(boxed), layout)
    rows = NamedSharding(mesh, P(("data", "fsdp")))
    residues = jax.ShapeDtypeStruct((config.batch, config.length), jnp.int32, sharding=rows)
    jitted = jax.jit(step, out_shardings=(*layout, NamedSharding(mesh, P())), donate_argnums=(0, 1))
    return jitted, (params, state, residues, residues)
