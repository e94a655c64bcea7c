# mypy: ignore-errors
"""Fixed."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

MEMBERS = 20
NY, NX = 512, 512
FIELDS = ("u", "v", "eta", "temperature")
STRIDE = 16  # one observation per STRIDE x STRIDE cells
WINDOWS, STEPS = 16, 24  # states kept in a cycle, time steps between them
DT, DX, G, DEPTH, VISCOSITY, CORIOLIS = 20.0, 5000.0, 9.81, 100.0, 500.0, 1e-4


def ddx(f):
    return (jnp.roll(f, -1, -1) - jnp.roll(f, 1, -1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, -2) - jnp.roll(f, 1, -2)) / (2 * DX)


def laplacian(f):
    return (jnp.roll(f, 1, -1) + jnp.roll(f, -1, -1) + jnp.roll(f, 1, -2) + jnp.roll(f, -1, -2) - 4 * f) / DX**2


def tendency(s):
    u, v, eta, temp = (s[FIELDS.index(n)] for n in FIELDS)
    advect = lambda f: u * ddx(f) + v * ddy(f)
    du = -advect(u) + CORIOLIS * v - G * ddx(eta) + VISCOSITY * laplacian(u)
    dv = -advect(v) - CORIOLIS * u - G * ddy(eta) + VISCOSITY * laplacian(v)
    deta = -ddx(u * (DEPTH + eta)) - ddy(v * (DEPTH + eta))
    dtemp = -advect(temp) + VISCOSITY * laplacian(temp)
    return jnp.stack([du, dv, deta, dtemp])


def heun(s):
    k1 = tendency(s)
    k2 = tendency(s + DT * k1)
    return s + 0.5 * DT * (k1 + k2)


def observe(ensemble):
    """Sea surface height and temperature at the stations: [members, observations]."""
    seen = ensemble[:, 2:, STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE]
    return seen.reshape(ensemble.shape[0], -1)


def transform(y, obs, r):
    """Weights of the ensemble transform Kalman filter, a MEMBERS x MEMBERS matrix."""
    mean = y.mean(0)
    anomalies = y - mean
    c = anomalies / r
    cov = (MEMBERS - 1) * jnp.eye(MEMBERS) + c @ anomalies.T
    lam, vec = jnp.linalg.eigh(cov)
    shift = vec @ ((vec.T @ (c @ (obs - mean))) / lam)
    spread = (vec * jnp.sqrt((MEMBERS - 1) / lam)) @ vec.T
    return spread + shift[None, :]


class Assimilation:
    def __init__(self, mesh):
        self.rows = NamedSharding(mesh, P(None, None, "chip", None))
        self.ensemble = P(None, None, "chip", None)
        self.moving = NamedSharding(mesh, self.ensemble)
        self.kept = NamedSharding(mesh, P(None, *self.ensemble))
        self.fields = NamedSharding(mesh, P(None, "chip", None))
        self.small = NamedSharding(mesh, P())

    def forecast(self, ensemble):
        step = lambda _, e: jax.lax.with_sharding_constraint(jax.vmap(heun)(e), self.moving)

        def window(e, _):
            e = jax.lax.fori_loop(0, STEPS, step, e)
            return e, e

        ensemble = jax.lax.with_sharding_constraint(ensemble, self.moving)
        return jax.lax.scan(window, ensemble, None, WINDOWS)

    def variability(self, states):
        """Eddy variance of every field over the kept states, averaged over the members."""
        states = jax.lax.with_sharding_constraint(states, self.kept)
        return jnp.square(states - states.mean(0)).mean((0, 1))

    def analyse(self, ensemble, obs, r):
        ensemble = jax.lax.with_sharding_constraint(ensemble, self.rows)
        y = jax.lax.with_sharding_constraint(observe(ensemble), self.small)
        mean = ensemble.mean(0)
        return mean + jnp.einsum("nm,mcyx->ncyx", transform(y, obs, r), ensemble - mean)

    def cycle(self, ensemble, obs, r):
        last, states = self.forecast(ensemble)
        return self.analyse(last, obs, r), self.variability(states)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(-1), ("chip",))
    job = Assimilation(mesh)
    ensemble = jax.ShapeDtypeStruct((MEMBERS, len(FIELDS), NY, NX), jnp.float32, sharding=job.rows)
    n_obs = 2 * (NY // STRIDE) * (NX // STRIDE)
    obs = jax.ShapeDtypeStruct((n_obs,), jnp.float32, sharding=job.small)
    cycle = jax.jit(job.cycle, out_shardings=(job.rows, job.fields), donate_argnums=0)
    return cycle, (ensemble, obs, obs)
