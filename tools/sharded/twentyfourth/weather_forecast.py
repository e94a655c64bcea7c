# mypy: ignore-errors
"""Fault: stack. The synthesis of the grid contracts the split wavenumbers, so each frame comes out whole, and the scan
stacks the whole frames of the entire forecast on every chip.

Spectral shallow-water-like forecast: state in spectral coefficients, frames on the grid for every output time.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Forecast:
    degrees: int = 256
    orders: int = 512
    latitudes: int = 512
    longitudes: int = 1024
    levels: int = 8
    frames: int = 24
    substeps: int = 6
    dt: float = 120.0
    diffusion: float = 1e-6


class SpectralModel:
    def __init__(self, setup, mesh):
        self.setup, self.mesh = setup, mesh
        self.by_order = NamedSharding(mesh, P(None, None, "order"))
        self.by_latitude = NamedSharding(mesh, P(None, "order", None))

    def tables(self):
        s = self.setup
        return {
            "legendre": jax.ShapeDtypeStruct((s.degrees, s.latitudes), jnp.float32, sharding=NamedSharding(self.mesh, P())),
            "fourier": jax.ShapeDtypeStruct(
                (s.orders, s.longitudes), jnp.float32, sharding=NamedSharding(self.mesh, P("order"))),
            "coupling": jax.ShapeDtypeStruct(
                (s.levels, s.levels, s.orders), jnp.float32, sharding=NamedSharding(self.mesh, P(None, None, "order"))),
        }

    def state(self):
        s = self.setup
        field = jax.ShapeDtypeStruct((s.levels, s.degrees, s.orders), jnp.float32, sharding=self.by_order)
        return {"vorticity": field, "height": field}

    def substep(self, state, tables):
        s = self.setup
        degree = jnp.arange(s.degrees, dtype=jnp.float32)[None, :, None]
        damping = 1.0 / (1.0 + s.dt * s.diffusion * (degree * (degree + 1)) ** 2)
        mixed = jnp.einsum("klm,kdm->ldm", tables["coupling"], state["height"])
        vorticity = (state["vorticity"] - s.dt * mixed) * damping
        height = (state["height"] + s.dt * degree * jnp.tanh(vorticity)) * damping
        return {"vorticity": vorticity, "height": height}

    def to_grid(self, coefficients, tables):
        """Legendre synthesis over degrees, then Fourier synthesis over orders."""
        partial_sums = jnp.einsum("ldm,dy->lym", coefficients, tables["legendre"])
        return jnp.einsum("lym,mx->lyx", partial_sums, tables["fourier"])  # FAULT

    def run(self, state, tables):
        def hour(state, _):
            for _ in range(self.setup.substeps):
                state = self.substep(state, tables)
            state = jax.tree.map(lambda c: jax.lax.with_sharding_constraint(c, self.by_order), state)
            frame = self.to_grid(state["height"], tables)  # FAULT
            return state, frame

        state, frames = jax.lax.scan(hour, state, length=self.setup.frames)  # FAULT
        peaks = jnp.max(jnp.abs(frames), axis=(2, 3))
        return state, frames, peaks


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4), ("order",))
    model = SpectralModel(Forecast(), mesh)
    return jax.jit(model.run, donate_argnums=0), (model.state(), model.tables())
