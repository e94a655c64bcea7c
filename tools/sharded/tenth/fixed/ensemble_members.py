# mypy: ignore-errors
"""Fixed."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Grid:
    variables: int = 12
    lats: int = 384
    lons: int = 768


@dataclass(frozen=True)
class EnsembleConfig:
    grid: Grid = Grid()
    perturbed: int = 8
    steps: int = 6
    amplitude: float = 0.05


def perturb(analysis, modes, amplitude):
    """The unperturbed control first, then one member for each mode."""
    members = analysis[None] + amplitude * modes
    return jnp.concatenate([analysis[None], members], axis=0)


def tendency(state, coupling):
    zonal = jnp.roll(state, 1, axis=-1) - 2 * state + jnp.roll(state, -1, axis=-1)
    return 0.1 * zonal + 0.01 * jnp.tanh(jnp.einsum("uv,mvyx->muyx", coupling, state))


def make_fixed(devices):
    cfg = EnsembleConfig()
    g = cfg.grid
    mesh = Mesh(np.array(devices), ("dev",))
    by_lat = NamedSharding(mesh, P(None, "dev", None))
    by_member = NamedSharding(mesh, P(None, None, "dev", None))

    def forecast(analysis, modes, coupling):
        members = perturb(analysis, modes, cfg.amplitude)
        members = lax.with_sharding_constraint(members, by_member)

        def step(state, _):
            middle = state + 0.5 * tendency(state, coupling)
            return state + tendency(middle, coupling), None

        members, _ = lax.scan(step, members, None, length=cfg.steps)
        mean = members.mean(axis=0)
        spread = jnp.sqrt(jnp.mean((members - mean) ** 2, axis=0))
        return mean, spread

    analysis = jax.ShapeDtypeStruct((g.variables, g.lats, g.lons), jnp.float32, sharding=by_lat)
    modes = jax.ShapeDtypeStruct(
        (cfg.perturbed, 1, g.lats, g.lons),
        jnp.float32,
        sharding=NamedSharding(mesh, P(None, None, "dev", None)),
    )
    coupling = jax.ShapeDtypeStruct(
        (g.variables, g.variables), jnp.float32, sharding=NamedSharding(mesh, P())
    )
    return jax.jit(forecast, out_shardings=(by_lat, by_lat)), (analysis, modes, coupling)
