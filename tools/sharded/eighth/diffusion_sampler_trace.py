# mypy: ignore-errors
"""Fault: stack. The previews that the sampler's scan collects are pinned to `data` only, so the stack of all steps is
whole along `rows`, over which the images themselves are split."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    steps: int = 32
    batch: int = 4
    side: int = 256
    channels: int = 64
    blocks: int = 3
    colours: int = 4


def conv(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def time_features(t, dim):
    freq = jnp.exp(-jnp.arange(dim // 2) * (jnp.log(1e4) / (dim // 2)))
    return jnp.concatenate([jnp.sin(t * freq), jnp.cos(t * freq)])


def denoise(params, x, t):
    emb = time_features(t, params["time"].shape[0]) @ params["time"]
    h = conv(x, params["inp"])

    def block(h, w):
        y = jax.nn.silu(conv(h, w["a"]) + emb)
        return h + conv(y, w["b"]), None

    h, _ = jax.lax.scan(block, h, params["blocks"])
    return conv(jax.nn.silu(h), params["out"])


def alphas(cfg):
    t = np.linspace(0.98, 0.02, cfg.steps + 1)
    return jnp.asarray(np.cos(t * np.pi / 2) ** 2, jnp.float32)


def make_faulty(devices):
    cfg = SamplerConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "rows"), axis_types=(AxisType.Auto,) * 2)

    def on(spec):
        return NamedSharding(mesh, spec)

    image = on(P("data", "rows", None, None))
    preview = on(P("data", None, None, None))  # FAULT

    def sample(params, noise):
        a = alphas(cfg)

        def step(x, i):
            eps = denoise(params, x, i.astype(jnp.float32))
            x0 = jnp.clip((x - jnp.sqrt(1 - a[i]) * eps) * jax.lax.rsqrt(a[i]), -1, 1)
            nxt = jnp.sqrt(a[i + 1]) * x0 + jnp.sqrt(1 - a[i + 1]) * eps
            frame = jnp.moveaxis(x0, -1, 1)
            frame = jax.lax.with_sharding_constraint(frame, preview)  # FAULT
            return jax.lax.with_sharding_constraint(nxt, image), frame

        return jax.lax.scan(step, noise, jnp.arange(cfg.steps))

    c = cfg.channels

    def w(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(P()))

    params = {
        "time": w(c, c),
        "inp": w(3, 3, cfg.colours, c),
        "blocks": {"a": w(cfg.blocks, 3, 3, c, c), "b": w(cfg.blocks, 3, 3, c, c)},
        "out": w(3, 3, c, cfg.colours),
    }
    noise = jax.ShapeDtypeStruct((cfg.batch, cfg.side, cfg.side, cfg.colours), jnp.float32, sharding=image)
    return jax.jit(sample, donate_argnums=1), (params, noise)
