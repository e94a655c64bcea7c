# mypy: ignore-errors
"""Fault: dropped. The feed-forward kernels name their wide axis "ffn", the rules only know "mlp", so the logical axis matches nothing and the kernels, their gradients and moments are whole on every device of the "model" axis."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

RULES = (
    ("batch", "data"),
    ("embed", None),
    ("heads", "model"),
    ("kv", None),
    ("mlp", "model"),
    ("vocab", "model"),
)

WIDTH, HEADS, LAYERS, VOCAB, LENGTH, BATCH = 768, 12, 2, 4096, 256, 8


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        def project(name):
            return nn.DenseGeneral(
                (HEADS, WIDTH // HEADS),
                use_bias=False,
                kernel_init=nn.with_logical_partitioning(
                    nn.initializers.lecun_normal(), ("embed", "heads", "kv")
                ),
                name=name,
            )(x)

        y = nn.dot_product_attention(project("q"), project("k"), project("v"))
        return nn.DenseGeneral(
            WIDTH,
            axis=(-2, -1),
            use_bias=False,
            kernel_init=nn.with_logical_partitioning(
                nn.initializers.lecun_normal(), ("heads", "kv", "embed")
            ),
            name="out",
        )(y)


class FeedForward(nn.Module):
    hidden_axes: tuple = ("embed", "mlp")

    @nn.compact
    def __call__(self, x):
        def dense(features, axes, name):
            init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), axes)
            return nn.Dense(features, use_bias=False, kernel_init=init, name=name)

        gate = dense(4 * WIDTH, self.hidden_axes, "gate")(x)
        up = dense(4 * WIDTH, self.hidden_axes, "up")(x)
        return dense(WIDTH, self.hidden_axes[::-1], "down")(nn.silu(gate) * up)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = nn.with_logical_partitioning(
            nn.initializers.normal(0.02), ("vocab", "embed")
        )
        embed = nn.Embed(VOCAB, WIDTH, embedding_init=table)
        x = embed(tokens)
        for _ in range(LAYERS):
            x = x + Attention()(nn.RMSNorm(use_scale=False)(x))
            x = x + FeedForward()(nn.RMSNorm(use_scale=False)(x))
        return embed.attend(x)


def train_step(state, tokens):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, tokens[:, 1:]
        ).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    model = Decoder()

    def init():
        tokens = jnp.zeros((1, LENGTH), jnp.int32)
        params = model.init(jax.random.key(0), tokens)["params"]
        return train_state.TrainState.create(
            apply_fn=model.apply, params=params, tx=optax.adamw(1e-4)
        )

    abstract = jax.eval_shape(init)
    shardings = nn.logical_to_mesh_sharding(
        nn.get_partition_spec(abstract), mesh, RULES
    )
    state = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s),
        nn.unbox(abstract),
        shardings,
    )
    tokens = jax.ShapeDtypeStruct(
        (BATCH, LENGTH + 1), jnp.int32, sharding=NamedSharding(mesh, P("data"))
    )
    step = jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, None))
    return step, (state, tokens)
