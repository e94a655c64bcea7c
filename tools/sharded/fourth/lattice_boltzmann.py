# mypy: ignore-errors
"""Fault: donated. The populations come in split over x and y but go out split over x only, so the donated input
cannot be reused for the result."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

# D2Q9 lattice.
VELOCITIES = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, dtype=np.float32)
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
NX, NY = 4096, 2048
SUBSTEPS = 3


def macroscopic(f):
    rho = jnp.sum(f, axis=0)
    ux = sum(float(c[0]) * f[i] for i, c in enumerate(VELOCITIES) if c[0]) / rho
    uy = sum(float(c[1]) * f[i] for i, c in enumerate(VELOCITIES) if c[1]) / rho
    return rho, ux, uy


def equilibrium(rho, ux, uy):
    usq = 1.5 * (ux * ux + uy * uy)
    planes = []
    for w, (cx, cy) in zip(WEIGHTS, VELOCITIES):
        cu = 3.0 * (float(cx) * ux + float(cy) * uy)
        planes.append(float(w) * rho * (1.0 + cu + 0.5 * cu * cu - usq))
    return jnp.stack(planes)


def collide(f, omega):
    rho, ux, uy = macroscopic(f)
    return f - omega * (f - equilibrium(rho, ux, uy))


def stream(f):
    return jnp.stack([jnp.roll(f[i], shift=(int(cx), int(cy)), axis=(0, 1)) for i, (cx, cy) in enumerate(VELOCITIES)])


def bounce_back(f, solid):
    reflected = jnp.stack([f[int(o)] for o in OPPOSITE])
    return jnp.where(solid[None], reflected, f)


def advance(f, solid, omega):
    def substep(_, g):
        return bounce_back(stream(collide(g, omega)), solid)

    f = jax.lax.fori_loop(0, SUBSTEPS, substep, f)
    rho, ux, uy = macroscopic(f)
    drag = jnp.sum(jnp.where(solid, rho * ux, 0.0))
    return f, {"drag": drag, "mass": jnp.sum(rho), "umax": jnp.max(jnp.hypot(ux, uy))}


class Simulation:
    """Holds the mesh and the layout of the lattice."""

    def __init__(self, devices, px=2, py=2):
        self.mesh = Mesh(np.array(devices).reshape(px, py), ("x", "y"))
        self.scalar = NamedSharding(self.mesh, P())

    def field(self, *spec):
        return NamedSharding(self.mesh, P(*spec))

    def arguments(self):
        f = jax.ShapeDtypeStruct((9, NX, NY), jnp.float32, sharding=self.field(None, "x", "y"))
        solid = jax.ShapeDtypeStruct((NX, NY), jnp.bool_, sharding=self.field("x", "y"))
        omega = jax.ShapeDtypeStruct((), jnp.float32, sharding=self.scalar)
        return f, solid, omega

    def compile_step(self, out_field):
        stats = {"drag": self.scalar, "mass": self.scalar, "umax": self.scalar}
        return jax.jit(advance, donate_argnums=(0,), out_shardings=(out_field, stats))  # FAULT


def make_faulty(devices):
    sim = Simulation(devices)
    # Slabs of rows: what the writer of the checkpoints wants.
    rows = sim.field(None, "x", None)  # FAULT
    return sim.compile_step(rows), sim.arguments()


def make_fixed(devices):
    sim = Simulation(devices)
    return sim.compile_step(sim.field(None, "x", "y")), sim.arguments()
