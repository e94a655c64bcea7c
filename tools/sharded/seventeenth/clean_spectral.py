# mypy: ignore-errors
"""Clean. Barotropic vorticity on the sphere by spectral transforms: latitudes and zonal wavenumbers
change places by an all-to-all, the Legendre tables are split by wavenumber, the ensemble by members.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Model:
    members: int = 16
    lat: int = 512
    lon: int = 1024
    waves: int = 344  # zonal wavenumbers 0..343, a multiple of the devices along "band"
    degrees: int = 344
    radius: float = 6.371e6
    omega: float = 7.292e-5
    dt: float = 120.0
    steps: int = 30
    robert: float = 0.02


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Tables:
    legendre: jax.Array  # (wave, degree, lat)
    slope: jax.Array  # (wave, degree, lat): (1 - mu^2) dP/dmu
    weights: jax.Array  # (lat,) Gaussian weights
    mu: jax.Array  # (lat,) sine of the latitude


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    before: jax.Array  # (member, wave, degree), complex
    now: jax.Array


SPECTRAL = P("member", "band", None)
GRID = P("member", "band", None)
TABLES = Tables(legendre=P("band", None, None), slope=P("band", None, None), weights=P(None), mu=P(None))


class Transform:
    """What a device does with its wavenumbers and with its latitudes; used inside shard_map."""

    def __init__(self, model, tables):
        self.model, self.tables = model, tables
        bands = lax.axis_size("band")
        rank = lax.axis_index("band")
        self.wave = rank * (model.waves // bands) + jnp.arange(model.waves // bands)
        rows = model.lat // bands
        self.mu = lax.dynamic_slice_in_dim(tables.mu, rank * rows, rows)

    def synthesis(self, spectrum, table):
        fourier = jnp.einsum("emn,mnj->emj", spectrum, table.astype(spectrum.dtype))
        fourier = lax.all_to_all(fourier, "band", split_axis=2, concat_axis=1, tiled=True)
        fourier = jnp.swapaxes(fourier, 1, 2)
        pad = self.model.lon // 2 + 1 - self.model.waves
        return jnp.fft.irfft(jnp.pad(fourier, ((0, 0), (0, 0), (0, pad))), n=self.model.lon, norm="forward")

    def analysis(self, grid, table):
        fourier = jnp.fft.rfft(grid, norm="forward")[..., : self.model.waves]
        fourier = jnp.swapaxes(fourier, 1, 2)
        fourier = lax.all_to_all(fourier, "band", split_axis=1, concat_axis=2, tiled=True)
        weighted = table * self.tables.weights
        return jnp.einsum("emj,mnj->emn", fourier, weighted.astype(fourier.dtype))

    def eigenvalues(self):
        n = self.wave[:, None] + jnp.arange(self.model.degrees)
        return -n * (n + 1.0) / self.model.radius**2


def tendency(tr, vorticity):
    t, r = tr.tables, tr.model.radius
    eigen = tr.eigenvalues()
    psi = jnp.where(eigen < 0, vorticity / jnp.where(eigen < 0, eigen, 1.0), 0.0)
    ik = 1j * tr.wave[:, None]
    u = -tr.synthesis(psi, t.slope) / r
    v = tr.synthesis(ik * psi, t.legendre) / r
    absolute = tr.synthesis(vorticity, t.legendre) + 2 * tr.model.omega * tr.mu[:, None]
    cosine2 = (1 - tr.mu**2)[:, None]
    east = ik * tr.analysis(u * absolute / cosine2, t.legendre)
    north = tr.analysis(v * absolute / cosine2, t.slope)
    return (north - east) / r


def integrate(tables, state, *, model):
    tr = Transform(model, tables)
    damping = 1 / (1 + 2 * model.dt * 1e15 * tr.eigenvalues() ** 2)

    def leapfrog(carry, _):
        before, now = carry
        after = (before + 2 * model.dt * tendency(tr, now)) * damping
        filtered = now + model.robert * (before - 2 * now + after)
        enstrophy = lax.psum(jnp.sum(jnp.abs(after) ** 2, (1, 2)), "band")
        return (filtered, after), enstrophy

    (before, now), enstrophy = lax.scan(leapfrog, (state.before, state.now), length=model.steps)
    return State(before, now), tr.synthesis(now, tables.legendre), enstrophy


def make_clean(devices):
    model = Model()
    mesh = Mesh(np.array(devices).reshape(2, 4), ("member", "band"))
    states, outs = State(SPECTRAL, SPECTRAL), (State(SPECTRAL, SPECTRAL), GRID, P(None, "member"))
    run = jax.shard_map(
        partial(integrate, model=model), mesh=mesh, in_specs=(TABLES, states), out_specs=outs
    )
    legendre = (model.waves, model.degrees, model.lat)
    spectrum = (model.members, model.waves, model.degrees)

    def array(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    tables = Tables(
        legendre=array(legendre, jnp.float32, TABLES.legendre),
        slope=array(legendre, jnp.float32, TABLES.slope),
        weights=array((model.lat,), jnp.float32, TABLES.weights),
        mu=array((model.lat,), jnp.float32, TABLES.mu),
    )
    state = State(array(spectrum, jnp.complex64, SPECTRAL), array(spectrum, jnp.complex64, SPECTRAL))
    return jax.jit(run, donate_argnums=(1,)), (tables, state)
