# mypy: ignore-errors
"""Fault: padding. Eight perturbed members and the control run make an ensemble of nine, split over eight devices: each device gets
room for two members. Splitting latitudes wastes nothing."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass
class Forecast:
    perturbed: int = 8
    lat: int = 256
    lon: int = 512
    levels: int = 12
    steps: int = 6
    width: int = 48

    @property
    def members(self):
        return self.perturbed + 1


def conv(x, w):
    """3x3 convolution, periodic in longitude, clamped at the poles."""
    x = jnp.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), mode="wrap")
    x = jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), mode="edge")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def tendency(params, x, orography):
    static = jnp.broadcast_to(orography[None, :, :, None], (*x.shape[:3], 1))
    h = jax.nn.silu(conv(jnp.concatenate([x, static], -1), params["enc"]))
    for w in params["mid"]:
        h = h + jax.nn.silu(conv(h, w))
    return conv(h, params["dec"])


def perturb(cfg, analysis, key, amplitude, keep):
    noise = jax.random.normal(key, (cfg.perturbed, *analysis.shape))
    members = jnp.concatenate([analysis[None], analysis[None] + amplitude * noise])
    return keep(members)


def statistics(x, control):
    mean = x.mean(0)
    spread = jnp.sqrt(jnp.mean((x - mean) ** 2, 0))
    return {"mean": mean.mean((0, 1)), "spread": spread.mean((0, 1)), "control_rms": jnp.sqrt((control**2).mean())}


def make_run(cfg, keep):
    def run(params, analysis, orography, amplitude, key):
        x = perturb(cfg, analysis, key, amplitude, keep)

        def hour(x, _):
            x = keep(x + 0.1 * tendency(params, x, orography))
            return x, statistics(x, x[0])

        x, stats = jax.lax.scan(hour, x, length=cfg.steps)
        return x.mean(0), stats

    return run


def build(devices, member_spec):
    cfg = Forecast()
    mesh = Mesh(np.array(devices), ("dev",))

    def keep(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, member_spec))

    def struct(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    params = {
        "enc": struct((3, 3, cfg.levels + 1, cfg.width)),
        "mid": [struct((3, 3, cfg.width, cfg.width)) for _ in range(2)],
        "dec": struct((3, 3, cfg.width, cfg.levels)),
    }
    analysis = struct((cfg.lat, cfg.lon, cfg.levels), "dev")
    orography = struct((cfg.lat, cfg.lon), "dev")
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=NamedSharding(mesh, P()))
    return jax.jit(make_run(cfg, keep)), (params, analysis, orography, struct(()), key)


def make_faulty(devices):
    return build(devices, P("dev"))  # FAULT


def make_fixed(devices):
    return build(devices, P(None, "dev"))
