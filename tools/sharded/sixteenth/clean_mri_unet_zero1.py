# mypy: ignore-errors
"""Clean. A U-Net for brain scans under ZeRO-1: the weights are whole on every device by choice
(they are small beside the activations), the optimizer's state is split over the devices.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    slices: int = 32
    side: int = 128
    contrasts: int = 4
    tissues: int = 9
    widths: Sequence[int] = (32, 64, 128, 256)
    peak: float = 1e-3
    steps: int = 40_000


class Double(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.Conv(self.width, (3, 3), use_bias=False)(x)
            x = nn.silu(nn.GroupNorm(num_groups=8)(x))
        return x


class UNet(nn.Module):
    widths: Sequence[int]
    tissues: int

    @nn.compact
    def __call__(self, x):
        *down, bottom = self.widths
        skips = []
        for width in down:
            x = Double(width)(x)
            skips.append(x)
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = Double(bottom)(x)
        for width, skip in zip(reversed(down), reversed(skips), strict=True):
            x = nn.ConvTranspose(width, (2, 2), strides=(2, 2))(x)
            x = Double(width)(jnp.concatenate([x, skip], axis=-1))
        return nn.Conv(self.tissues, (1, 1))(x)


def dice_and_entropy(logits, labels):
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    probs, truth = jax.nn.softmax(logits), jax.nn.one_hot(labels, logits.shape[-1])
    both = jnp.sum(probs * truth, axis=(0, 1, 2))
    dice = 2 * both / (jnp.sum(probs, axis=(0, 1, 2)) + jnp.sum(truth, axis=(0, 1, 2)) + 1.0)
    return jnp.mean(entropy) + 1.0 - jnp.mean(dice)


def zero1_spec(leaf, parts):
    """Splits the largest dimension that divides; leaves of a few hundred numbers stay whole."""
    if leaf.size < 4096:
        return P()
    fitting = [i for i, n in enumerate(leaf.shape) if n % parts == 0]
    if not fitting:
        return P()
    widest = max(fitting, key=lambda i: leaf.shape[i])
    return P(*("data" if i == widest else None for i in range(leaf.ndim)))


def make_clean(devices):
    cfg = TrainConfig()
    mesh = Mesh(np.array(devices), ("data",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    model = UNet(cfg.widths, cfg.tissues)
    schedule = optax.cosine_decay_schedule(cfg.peak, cfg.steps)
    tx = optax.adamw(schedule, weight_decay=1e-4)

    def zero1(tree):
        return jax.tree.map(lambda a: NamedSharding(mesh, zero1_spec(a, mesh.size)), tree)

    def struct(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    scans = jax.ShapeDtypeStruct((cfg.slices, cfg.side, cfg.side, cfg.contrasts), jnp.float32)
    labels = jax.ShapeDtypeStruct((cfg.slices, cfg.side, cfg.side), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), scans)["params"]
    opt_state = jax.eval_shape(tx.init, params)

    def step(params, opt_state, scans, labels):
        def loss_fn(params):
            return dice_and_entropy(model.apply({"params": params}, scans), labels)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        grads = jax.lax.with_sharding_constraint(grads, zero1(grads))
        mine = jax.lax.with_sharding_constraint(params, zero1(params))
        updates, opt_state = tx.update(grads, opt_state, mine)
        return optax.apply_updates(mine, updates), opt_state, loss

    args = (
        jax.tree.map(lambda leaf: struct(leaf, whole), params),
        jax.tree.map(struct, opt_state, zero1(opt_state)),
        struct(scans, rows),
        struct(labels, rows),
    )
    out = (jax.tree.map(lambda _: whole, params), zero1(opt_state), whole)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), args
