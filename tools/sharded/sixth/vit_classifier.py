# mypy: ignore-errors
"""Fault: dropped. The MLP of the ViT annotates its hidden axis as "mlp_hidden", for which the rule table has no entry, so
kernels, moments and hidden activations of all MLPs stay unsplit along the model axis."""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

RULES = (
    ("batch", "data"),
    ("layers", None),
    ("tokens", None),
    ("embed", None),
    ("heads", "model"),
    ("kv", None),
    ("mlp", "model"),
    ("classes", "model"),
)


class Mlp(nn.Module):
    width: int
    hidden: int
    mesh: Mesh
    hidden_axis: str

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.xavier_uniform()
        up = nn.Dense(self.hidden, dtype=jnp.bfloat16, use_bias=False, name="fc1",
                      kernel_init=nn.with_logical_partitioning(init, ("embed", self.hidden_axis)))
        down = nn.Dense(self.width, dtype=jnp.bfloat16, use_bias=False, name="fc2",
                        kernel_init=nn.with_logical_partitioning(init, (self.hidden_axis, "embed")))
        h = nn.gelu(up(x))
        h = nn.with_logical_constraint(h, ("batch", "tokens", self.hidden_axis), rules=RULES, mesh=self.mesh)
        return down(h)


class Attention(nn.Module):
    width: int
    heads: int
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        dh = self.width // self.heads
        init = nn.initializers.xavier_uniform()
        proj = functools.partial(nn.DenseGeneral, features=(self.heads, dh), dtype=jnp.bfloat16, use_bias=False,
                                 kernel_init=nn.with_logical_partitioning(init, ("embed", "heads", "kv")))
        q, k, v = proj(name="q")(x), proj(name="k")(x), proj(name="v")(x)
        q, k, v = (nn.with_logical_constraint(a, ("batch", "tokens", "heads", "kv"), rules=RULES, mesh=self.mesh)
                   for a in (q, k, v))
        p = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * dh**-0.5)
        o = jnp.einsum("bhqk,bkhd->bqhd", p, v)
        return nn.DenseGeneral(self.width, axis=(-2, -1), dtype=jnp.bfloat16, use_bias=False, name="o",
                               kernel_init=nn.with_logical_partitioning(init, ("heads", "kv", "embed")))(o)


class Block(nn.Module):
    width: int
    heads: int
    mesh: Mesh
    hidden_axis: str

    @nn.compact
    def __call__(self, x, _):
        x = nn.with_logical_constraint(x, ("batch", "tokens", "embed"), rules=RULES, mesh=self.mesh)
        x = x + Attention(self.width, self.heads, self.mesh, name="attn")(nn.LayerNorm(dtype=jnp.bfloat16)(x))
        mlp = Mlp(self.width, 4 * self.width, self.mesh, self.hidden_axis, name="mlp")
        return x + mlp(nn.LayerNorm(dtype=jnp.bfloat16)(x)), None


class ViT(nn.Module):
    mesh: Mesh
    hidden_axis: str
    width: int = 1536
    heads: int = 16
    depth: int = 3
    patch: int = 14
    classes: int = 1000

    @nn.compact
    def __call__(self, images):
        n, side, p = images.shape[0], images.shape[1] // self.patch, self.patch
        x = images.reshape(n, side, p, side, p, 3).swapaxes(2, 3).reshape(n, side * side, p * p * 3)
        x = nn.Dense(self.width, dtype=jnp.bfloat16, name="patchify")(x)
        x = x + self.param("pos", nn.initializers.normal(0.02), (1, x.shape[1], self.width)).astype(x.dtype)
        blocks = nn.scan(nn.remat(Block, prevent_cse=False), variable_axes={"params": 0}, split_rngs={"params": True},
                         length=self.depth, metadata_params={nn.PARTITION_NAME: "layers"})
        x, _ = blocks(self.width, self.heads, self.mesh, self.hidden_axis, name="blocks")(x, None)
        x = nn.LayerNorm()(x.mean(1))
        return nn.Dense(self.classes, name="head",
                        kernel_init=nn.with_logical_partitioning(nn.initializers.zeros, ("embed", "classes")))(x)


def build(devices, hidden_axis):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("data", "model"))
    model = ViT(mesh, hidden_axis)
    tx = optax.adamw(3e-4, weight_decay=0.05)
    image = jax.ShapeDtypeStruct((32, 224, 224, 3), jnp.bfloat16, sharding=NamedSharding(mesh, P("data")))
    label = jax.ShapeDtypeStruct((32,), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    def init(key):
        params = model.init(key, jnp.zeros((1, 224, 224, 3), jnp.bfloat16))["params"]
        return params, tx.init(params)

    boxed = jax.eval_shape(init, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    state = jax.tree.map(lambda s, sh: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sh),
                         nn.unbox(boxed), shardings)

    def step(state, image, label):
        params, opt = state

        def loss_fn(p):
            logits = model.apply({"params": p}, image)
            return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None)), (state, image, label)


def make_faulty(devices):
    return build(devices, hidden_axis="mlp_hidden")  # FAULT


def make_fixed(devices):
    return build(devices, hidden_axis="mlp")
