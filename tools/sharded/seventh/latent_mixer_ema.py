# mypy: ignore-errors
"""Fault: optimizer. The moving average of the weights that is kept for sampling has no entry in the sharding plan other
than the default, so it is whole on each chip while the weights it follows are split sixteen ways."""
import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

BATCH, TOKENS, LATENT, WIDTH, TIME, DEPTH = 32, 256, 16, 2048, 1024, 1


class MixerBlock(nnx.Module):
    """Mixes tokens, then channels, with a shift from the time embedding."""

    def __init__(self, rngs):
        self.tokens = nnx.Linear(TOKENS, TOKENS, rngs=rngs)
        self.time = nnx.Linear(TIME, WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, t):
        x = x + jnp.swapaxes(self.tokens(jnp.swapaxes(x, 1, 2)), 1, 2)
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) + self.time(t)[:, None]
        return x + self.down(jax.nn.gelu(self.up(h)))


class Denoiser(nnx.Module):
    def __init__(self, rngs):
        self.time_mlp = nnx.Linear(256, TIME, rngs=rngs)
        self.stem = nnx.Linear(LATENT, WIDTH, rngs=rngs)
        self.blocks = nnx.List([MixerBlock(rngs) for _ in range(DEPTH)])
        self.head = nnx.Linear(WIDTH, LATENT, rngs=rngs)

    def __call__(self, x, t):
        freqs = jnp.exp(-jnp.arange(128) / 128 * 9.2)
        ang = t[:, None] * freqs
        t = jax.nn.silu(self.time_mlp(jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1)))
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, t)
        return self.head(h)


@flax.struct.dataclass
class TrainState:
    step: jax.Array
    weights: nnx.State
    momentum: nnx.State
    ema: nnx.State


def split_output_channels(mesh):
    def rule(leaf):
        n = mesh.size
        if leaf.ndim >= 2 and leaf.shape[-1] % n == 0:
            return NamedSharding(mesh, P(*[None] * (leaf.ndim - 1), ("data", "fsdp")))
        return NamedSharding(mesh, P())

    return rule


def plan_state(mesh, state, sharded_fields):
    """Sharding for each field of the state; fields that are not listed get the default."""
    rule = split_output_channels(mesh)
    default = NamedSharding(mesh, P())
    fields = {}
    for name in ("step", "weights", "momentum", "ema"):
        pick = rule if name in sharded_fields else lambda _: default
        fields[name] = jax.tree.map(pick, getattr(state, name))
    return TrainState(**fields)


def diffusion_trainer(devices, sharded_fields):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "fsdp"))
    graphdef, weights = nnx.split(nnx.eval_shape(lambda: Denoiser(nnx.Rngs(0))), nnx.Param)
    state = TrainState(jax.ShapeDtypeStruct((), jnp.int32), weights, weights, weights)
    plan = plan_state(mesh, state, sharded_fields)
    state = jax.tree.map(lambda s, h: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=h), state, plan)

    def loss_fn(w, x0, noise, t):
        abar = jnp.cos(t * jnp.pi / 2)[:, None, None] ** 2
        xt = jnp.sqrt(abar) * x0 + jnp.sqrt(1 - abar) * noise
        return jnp.mean((nnx.merge(graphdef, w)(xt, t * 1000) - noise) ** 2)

    def step(state, x0, noise, t):
        loss, g = jax.value_and_grad(loss_fn)(state.weights, x0, noise, t)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, state.momentum, g)
        w = jax.tree.map(lambda w, m: w - 1e-4 * m, state.weights, m)
        ema = jax.tree.map(lambda e, w: 0.9999 * e + 0.0001 * w, state.ema, w)
        return TrainState(state.step + 1, w, m, ema), loss

    rows = NamedSharding(mesh, P(("data", "fsdp")))
    latents = jax.ShapeDtypeStruct((BATCH, TOKENS, LATENT), jnp.float32, sharding=rows)
    t = jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows)
    fn = jax.jit(step, donate_argnums=0, out_shardings=(plan, NamedSharding(mesh, P())))
    return fn, (state, latents, latents, t)


def make_faulty(devices):
    return diffusion_trainer(devices, sharded_fields={"weights", "momentum"})  # FAULT


def make_fixed(devices):
    return diffusion_trainer(devices, sharded_fields={"weights", "momentum", "ema"})
