# mypy: ignore-errors
"""Clean. Plain data parallelism: a small convolutional speech model is replicated by choice, the long audio batch is split."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CLIPS, MEL_FRAMES, MELS, KEYWORDS = 2048, 128, 80, 35


class SeparableBlock(nn.Module):
    features: int
    kernel: int

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(x.shape[-1], (self.kernel,), feature_group_count=x.shape[-1], use_bias=False)(x)
        y = nn.Conv(self.features, (1,))(y)
        y = nn.GroupNorm(num_groups=8)(y)
        if x.shape[-1] == self.features:
            y = y + x
        return nn.relu(y)


class KeywordNet(nn.Module):
    widths: tuple = (128, 128, 192)

    @nn.compact
    def __call__(self, mel):
        x = nn.Conv(self.widths[0], (7,), strides=(2,))(mel)
        for i, w in enumerate(self.widths):
            x = SeparableBlock(w, 9 + 2 * i)(x)
        pooled = jnp.concatenate([x.mean(1), x.max(1)], axis=-1)
        return nn.Dense(KEYWORDS)(pooled)


def spec_augment(mel, key):
    """Masks one band of frequencies and one span of time per clip."""
    kf, kt = jax.random.split(key)
    f0 = jax.random.randint(kf, (mel.shape[0], 1), 0, MELS - 12)
    t0 = jax.random.randint(kt, (mel.shape[0], 1), 0, MEL_FRAMES - 20)
    f, t = jnp.arange(MELS)[None], jnp.arange(MEL_FRAMES)[None]
    keep_f = (f < f0) | (f >= f0 + 12)
    keep_t = (t < t0) | (t >= t0 + 20)
    return mel * keep_t[:, :, None] * keep_f[:, None, :]


def train_step(state, mel, label, key):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, spec_augment(mel, key))
        smooth = optax.smooth_labels(jax.nn.one_hot(label, KEYWORDS), 0.1)
        return optax.softmax_cross_entropy(logits, smooth).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    accuracy = jnp.mean(jnp.argmax(logits, -1) == label)
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("data",))
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    net = KeywordNet()

    def init():
        params = net.init(jax.random.key(0), jnp.zeros((1, MEL_FRAMES, MELS)))["params"]
        return train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adamw(1e-3))

    state = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=replicated), jax.eval_shape(init)
    )
    mel = jax.ShapeDtypeStruct((CLIPS, MEL_FRAMES, MELS), jnp.float32, sharding=rows)
    label = jax.ShapeDtypeStruct((CLIPS,), jnp.int32, sharding=rows)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=replicated)
    return jax.jit(train_step, donate_argnums=0, out_shardings=replicated), (state, mel, label, key)
