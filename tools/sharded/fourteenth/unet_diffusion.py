# mypy: ignore-errors
"""Fault: optimizer. The exponential moving average of the parameters is whole on every device although parameters and
Adam's moments are divided eight ways; it costs a full copy of the model in float32."""
from typing import Any
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
CHANNELS = (128, 256, 512)


def conv(features, size=3, stride=1):
    init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, None, None, "fsdp"))
    return nn.Conv(features, (size, size), strides=stride, kernel_init=init, use_bias=False)


class ResBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, temb):
        h = conv(self.features)(nn.silu(nn.GroupNorm(16)(x)))
        h = h + nn.Dense(self.features)(nn.silu(temb))[:, None, None, :]
        h = conv(self.features)(nn.silu(nn.GroupNorm(16)(h)))
        return h + (x if x.shape[-1] == self.features else conv(self.features, 1)(x))


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x, t):
        freqs = jnp.exp(-jnp.arange(32) * jnp.log(1e4) / 32)
        ang = t[:, None] * freqs
        temb = nn.Dense(256)(jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1))
        x, skips = conv(CHANNELS[0])(x), []
        for c in CHANNELS:
            x = ResBlock(c)(x, temb)
            skips.append(x)
            x = conv(c, stride=2)(x)
        x = ResBlock(CHANNELS[-1])(x, temb)
        for c, skip in zip(reversed(CHANNELS), reversed(skips)):
            x = jax.image.resize(x, skip.shape[:3] + x.shape[3:], "nearest")
            x = ResBlock(c)(jnp.concatenate([x, skip], -1), temb)
        return nn.Conv(3, (3, 3))(nn.silu(nn.GroupNorm(16)(x)))


@flax.struct.dataclass
class TrainState:
    step: jax.Array
    params: Any
    ema: Any
    opt_state: Any


def state_shardings(mesh, state):
    rep = NamedSharding(mesh, P())
    shardings = nn.get_sharding(state, mesh)
    return shardings.replace(
        step=rep,
        ema=jax.tree.map(lambda _: rep, nn.unbox(state.ema)),  # FAULT
    )


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    model, tx = UNet(), optax.adam(1e-4)
    data = NamedSharding(mesh, P("fsdp"))

    def init(rng):
        params = model.init(rng, jnp.zeros((1, 32, 32, 3)), jnp.zeros((1,)))["params"]
        return TrainState(jnp.zeros((), jnp.int32), params, jax.tree.map(jnp.copy, params), tx.init(params))

    boxed = jax.eval_shape(init, jax.random.key(0))
    shardings = state_shardings(mesh, boxed)
    state = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), nn.unbox(boxed), shardings)

    def loss_fn(params, images, noise, t):
        alpha = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
        noisy = alpha * images + jnp.sqrt(1 - alpha**2) * noise
        return jnp.mean((model.apply({"params": params}, noisy, t) - noise) ** 2)

    def train_step(state, images, rng):
        k1, k2 = jax.random.split(rng)
        noise = jax.lax.with_sharding_constraint(jax.random.normal(k1, images.shape), data)
        t = jax.random.uniform(k2, images.shape[:1])
        loss, grads = jax.value_and_grad(loss_fn)(state.params, images, noise, t)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9999 * e + 0.0001 * p, state.ema, params)
        return state.replace(step=state.step + 1, params=params, ema=ema, opt_state=opt_state), loss

    fn = jax.jit(train_step, in_shardings=(shardings, data, None), out_shardings=(shardings, None), donate_argnums=0)
    images = jax.ShapeDtypeStruct((16, 32, 32, 3), jnp.float32)
    return fn, (state, images, jax.eval_shape(lambda: jax.random.key(0)))
