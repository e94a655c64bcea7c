# mypy: ignore-errors
"""Fault: donated. The populations of a lattice-Boltzmann run come in split over both domain axes and are asked back split over one, so the donated buffer cannot take the result and every step holds the state in both layouts."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

NX, NY, REPLICAS = 1024, 1024, 8
OMEGA = 1.2
VELOCITIES = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


def macroscopic(f):
    rho = sum(f)
    ux = sum(c[0] * fi for c, fi in zip(VELOCITIES, f)) / rho
    uy = sum(c[1] * fi for c, fi in zip(VELOCITIES, f)) / rho
    return rho, ux, uy


def equilibrium(i, rho, ux, uy):
    cx, cy = VELOCITIES[i]
    cu = 3.0 * (cx * ux + cy * uy)
    return WEIGHTS[i] * rho * (1 + cu + 0.5 * cu**2 - 1.5 * (ux**2 + uy**2))


def collide(f):
    rho, ux, uy = macroscopic(f)
    return [
        fi + OMEGA * (equilibrium(i, rho, ux, uy) - fi) for i, fi in enumerate(f)
    ]


def force(f, drive):
    return [
        fi + 3.0 * WEIGHTS[i] * VELOCITIES[i][0] * drive for i, fi in enumerate(f)
    ]


def advance(state, drive):
    f = [state["f"][:, i] for i in range(9)]
    f = force(collide(f), drive)
    _, ux, uy = macroscopic(f)
    energy = jnp.mean(ux**2 + uy**2, axis=(1, 2))
    return {"f": jnp.stack(f, axis=1), "time": state["time"] + 1}, energy


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("y", "x"))
    state_in = {
        "f": NamedSharding(mesh, P(None, None, "y", "x")),
        "time": NamedSharding(mesh, P()),
    }
    state_out = {
        "f": NamedSharding(mesh, P(None, None, "y", "x")),
        "time": NamedSharding(mesh, P()),
    }
    state = {
        "f": jax.ShapeDtypeStruct(
            (REPLICAS, 9, NY, NX), jnp.float32, sharding=state_in["f"]
        ),
        "time": jax.ShapeDtypeStruct((), jnp.int32, sharding=state_in["time"]),
    }
    drive = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    step = jax.jit(advance, donate_argnames="state", out_shardings=(state_out, None))
    return step, (state, drive)
