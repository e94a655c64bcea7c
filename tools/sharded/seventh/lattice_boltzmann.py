# mypy: ignore-errors
"""Fault: donated. The populations come in cut along x and y and the step hands them back cut along x only, so the donated
buffer cannot hold the result: the old and a twice as large new set of populations exist at once."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "cpu"

VELOCITIES = np.array([(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if abs(x) + abs(y) + abs(z) < 3])
_NORM = np.abs(VELOCITIES).sum(1)
WEIGHTS = np.choose(_NORM, [1 / 3, 1 / 18, 1 / 36]).astype(np.float32)
OPPOSITE = np.array([int(np.where((VELOCITIES == -v).all(1))[0][0]) for v in VELOCITIES])


class D3Q19:
    shape = (128, 256, 128)
    omega = 1.7

    def __init__(self, mesh, out_axes):
        self.mesh = mesh
        self.in_sharding = self.layout("px", "py", None)
        self.out_sharding = self.layout(*out_axes)

    def layout(self, x, y, z):
        return NamedSharding(self.mesh, PartitionSpec(None, x, y, z))

    def macroscopic(self, f):
        rho = jnp.sum(f, axis=0)
        u = jnp.einsum("qxyz,qd->dxyz", f, jnp.asarray(VELOCITIES, jnp.float32)) / rho
        return rho, u

    def equilibrium(self, q, rho, u):
        c = VELOCITIES[q]
        cu = sum(float(c[d]) * u[d] for d in range(3) if c[d])
        usq = jnp.sum(u * u, axis=0)
        return WEIGHTS[q] * rho * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * usq)

    def stream(self, f_q, q):
        for axis, shift in enumerate(VELOCITIES[q]):
            if shift:
                f_q = jnp.roll(f_q, int(shift), axis)
        return f_q

    def step(self, f, solid):
        rho, u = self.macroscopic(f)
        u = jnp.where(solid, 0.0, u)
        new = []
        for q in range(len(VELOCITIES)):
            relaxed = f[q] + self.omega * (self.equilibrium(q, rho, u) - f[q])
            bounced = jnp.where(solid, f[OPPOSITE[q]], relaxed)
            new.append(self.stream(bounced, q))
        return jnp.stack(new), jnp.max(jnp.sum(u * u, axis=0))

    def compiled_entry(self):
        scalar = NamedSharding(self.mesh, PartitionSpec())
        mask = NamedSharding(self.mesh, PartitionSpec("px", "py"))
        return jax.jit(
            self.step,
            in_shardings=(self.in_sharding, mask),
            out_shardings=(self.out_sharding, scalar),
            donate_argnums=(0,),
        )

    def arguments(self):
        f = jax.ShapeDtypeStruct((len(VELOCITIES), *self.shape), jnp.float32, sharding=self.in_sharding)
        solid = jax.ShapeDtypeStruct(self.shape, jnp.bool_, sharding=NamedSharding(self.mesh, PartitionSpec("px", "py")))
        return f, solid


def build(devices, out_axes):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2), devices=devices), ("px", "py"))
    sim = D3Q19(mesh, out_axes)
    return sim.compiled_entry(), sim.arguments()


def make_faulty(devices):
    return build(devices, out_axes=("px", None, None))  # FAULT


def make_fixed(devices):
    return build(devices, out_axes=("px", "py", None))
