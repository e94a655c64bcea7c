# mypy: ignore-errors
"""Fixed."""
from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
FRAMES, SIDE, LATENT = 17, 64, 16
WIDTHS = (512, 256, 128)

RULES = (
    ("frame", None),
    ("row", "chips"),
    ("column", None),
    ("channel", None),
    ("pixel_row", "chips"),
)


class Placed(nn.Module):
    mesh: Mesh

    def pin(self, x, row="row"):
        names = ("frame" if row == "row" else None, row, "column", "channel")
        return nn.with_logical_constraint(x, names, rules=RULES, mesh=self.mesh)


class ResBlock(Placed):
    width: int = 0

    @nn.compact
    def __call__(self, x):
        conv = lambda name: nn.Conv(self.width, (3, 3), dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name=name)
        norm = lambda name: nn.RMSNorm(dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name=name)
        h = self.pin(conv("conv1")(nn.silu(norm("norm1")(x))))
        h = self.pin(conv("conv2")(nn.silu(norm("norm2")(h))))
        if x.shape[-1] != self.width:
            x = nn.Dense(self.width, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name="skip")(x)
        return self.pin(x + h)


class TimeMix(Placed):
    """A causal depthwise filter over three frames."""

    @nn.compact
    def __call__(self, x):
        taps = self.param("taps", nn.initializers.normal(0.1), (2, x.shape[-1]), jnp.bfloat16)
        one = jnp.concatenate([x[:1], x[:-1]])
        two = jnp.concatenate([x[:1], one[:-1]])
        return self.pin(x + one * taps[0] + two * taps[1])


class Decoder(Placed):
    @nn.compact
    def __call__(self, z):
        x = self.pin(nn.Conv(WIDTHS[0], (3, 3), dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name="stem")(z))
        x = TimeMix(self.mesh, name="time")(x)
        for i, width in enumerate(WIDTHS):
            x = ResBlock(self.mesh, width, name=f"res{i}a")(x)
            x = ResBlock(self.mesh, width, name=f"res{i}b")(x)
            if i + 1 < len(WIDTHS):
                x = self.pin(x.repeat(2, axis=1).repeat(2, axis=2))
        rgb = nn.Conv(3, (3, 3), dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name="rgb")(nn.silu(x))
        levels = jnp.clip(rgb * 127.5 + 127.5, 0, 255).astype(jnp.uint8)
        return self.pin(levels, row="pixel_row")


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    decoder = Decoder(mesh)
    z = jax.ShapeDtypeStruct((FRAMES, SIDE, SIDE, LATENT), jnp.bfloat16)
    variables = jax.eval_shape(decoder.init, jax.random.key(0), z)
    whole = NamedSharding(mesh, P())
    decode = jax.jit(decoder.apply, in_shardings=(whole, whole), out_shardings=NamedSharding(mesh, P(None, "chips")))
    return decode, (variables, z)
