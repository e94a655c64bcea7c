# mypy: ignore-errors
"""Clean. CTC-style training of a flax (linen) convolution-and-attention speech encoder on log-mel frames, with logical
names of axes and one table of rules.
"""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RULES = (
    ("batch", "data"),
    ("frames", None),
    ("embed", None),
    ("ffn", "model"),
    ("heads", "model"),
    ("conv_out", "model"),
    ("tokens", "model"),
)
LAYERS, DIM, HIDDEN, HEADS, TOKENS = 6, 768, 6144, 12, 1024
BATCH, FRAMES, MELS = 8, 512, 80


def place(mesh, x, *names):
    return nn.with_logical_constraint(x, names, rules=RULES, mesh=mesh)


def kernel(*names):
    return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)


class FeedForward(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(use_bias=False)(x)
        x = nn.Dense(HIDDEN, use_bias=False, kernel_init=kernel("embed", "ffn"))(x)
        x = place(self.mesh, nn.silu(x), "batch", "frames", "ffn")
        return nn.Dense(DIM, use_bias=False, kernel_init=kernel("ffn", "embed"))(x)


class Attention(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(use_bias=False)(x)
        batch, frames, _ = x.shape
        heads = []
        for name in ("query", "key", "value"):
            y = nn.Dense(DIM, use_bias=False, kernel_init=kernel("embed", "heads"), name=name)(x)
            heads.append(y.reshape(batch, frames, HEADS, DIM // HEADS))
        query, key, value = (place(self.mesh, y, "batch", "frames", "heads", None) for y in heads)
        y = jax.nn.dot_product_attention(query, key, value).reshape(batch, frames, DIM)
        return nn.Dense(DIM, use_bias=False, kernel_init=kernel("heads", "embed"), name="out")(y)


class LocalMix(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(use_bias=False)(x)
        x = nn.Dense(2 * DIM, use_bias=False, kernel_init=kernel("embed", "conv_out"))(x)
        x = nn.glu(x)
        x = nn.Conv(DIM, (15,), feature_group_count=DIM, use_bias=False)(x)
        return nn.Dense(DIM, use_bias=False, kernel_init=kernel("conv_out", "embed"))(nn.silu(x))


class Encoder(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, mels):
        x = nn.Dense(DIM, use_bias=False, kernel_init=kernel(None, "embed"))(mels)
        for _ in range(LAYERS):
            for part in (FeedForward, Attention, LocalMix):
                x = x + nn.remat(part)(self.mesh)(x)
                x = place(self.mesh, x, "batch", "frames", "embed")
        return nn.Dense(TOKENS, use_bias=False, kernel_init=kernel("embed", "tokens"))(x)


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("data", "model"))
    encoder, optimizer = Encoder(mesh), optax.adam(3e-4)
    mels = jax.ShapeDtypeStruct((BATCH, FRAMES, MELS), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    labels = jax.ShapeDtypeStruct((BATCH, FRAMES), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    def create(key):
        params = encoder.init(key, jnp.zeros(mels.shape))["params"]
        return {"params": params, "moments": optimizer.init(params)}

    boxed = jax.eval_shape(create, jax.random.key(0))
    layout = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)

    def step(state, mels, labels):
        def loss_fn(params):
            logits = encoder.apply({"params": params}, mels)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state["params"])
        updates, moments = optimizer.update(grads, state["moments"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "moments": moments}, loss

    def given(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    state = jax.tree.map(given, nn.unbox(boxed), layout)
    return jax.jit(step, out_shardings=(layout, NamedSharding(mesh, P())), donate_argnums=0), (state, mels, labels)
