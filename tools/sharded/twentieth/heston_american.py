# mypy: ignore-errors
"""Fault: stack. The record of all steps, which the loop carries, is pinned without a spec, and `pin` without one
means whole on every chip; the state of a single step is divided by paths.

American basket option under the Heston model: the paths are simulated forward in one scan, which records
them, and exercised backward by least-squares regression (Longstaff and Schwartz).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Market:
    rate: float = 0.03
    kappa: float = 2.0
    theta: float = 0.04
    xi: float = 0.4
    rho: float = -0.6
    maturity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Run:
    paths: int = 2**19
    steps: int = 160
    basis: int = 6

    @property
    def dt(self):
        return Market.maturity / self.steps


class Pricer:
    def __init__(self, run, market, mesh):
        self.run, self.market, self.mesh = run, market, mesh
        self.paths = P(("x", "y"))

    def pin(self, x, spec=P()):  # FAULT
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def simulate(self, key, spot, variance):
        run, m = self.run, self.market

        def step(state, at):
            log_s, v, record = state
            i, key = at
            z = jax.random.normal(key, (2, run.paths))
            w = m.rho * z[0] + jnp.sqrt(1 - m.rho**2) * z[1]
            calm = jnp.maximum(v, 0.0)
            log_s = log_s + (m.rate - 0.5 * calm) * run.dt + jnp.sqrt(calm * run.dt) * w
            v = v + m.kappa * (m.theta - calm) * run.dt + m.xi * jnp.sqrt(calm * run.dt) * z[0]
            log_s, v = self.pin(log_s, self.paths), self.pin(v, self.paths)
            record = jax.tree.map(lambda r, a: self.pin(r.at[i].set(a)), record, (log_s, v))  # FAULT
            return (log_s, v, record), None

        start = (jnp.full((run.paths,), jnp.log(spot)), jnp.full((run.paths,), variance))
        start = jax.tree.map(lambda a: self.pin(a, self.paths), start)
        record = (jnp.zeros((run.steps, run.paths)),) * 2
        steps = jnp.arange(run.steps), jax.random.split(key, run.steps)
        (_, _, record), _ = jax.lax.scan(step, (*start, record), steps)
        return record

    def features(self, s, v):
        return jnp.stack([jnp.ones_like(s), s, s * s, v, v * v, s * v])

    def exercise(self, history, strike):
        """Backward induction; the regression's normal equations are the only sums over all paths."""
        run, m = self.run, self.market
        discount = jnp.exp(-m.rate * run.dt)

        def back(value, now):
            s, v = jnp.exp(now[0]) / strike, now[1]
            payoff = jnp.maximum(1.0 - s, 0.0)
            value = value * discount
            x = self.features(s, v) * (payoff > 0)
            gram = jnp.einsum("ip,jp->ij", x, x, precision="highest") / run.paths
            moment = jnp.einsum("ip,p->i", x, value, precision="highest") / run.paths
            beta = jnp.linalg.solve(gram + 1e-6 * jnp.eye(run.basis), moment)
            continuation = beta @ x
            early = (payoff > 0) & (payoff > continuation)
            return self.pin(jnp.where(early, payoff, value), self.paths), early.mean()

        last = jnp.maximum(1.0 - jnp.exp(history[0][-1]) / strike, 0.0)
        before = jax.tree.map(lambda a: a[:-1], history)
        value, boundary = jax.lax.scan(back, self.pin(last, self.paths), before, reverse=True)
        return strike * discount * value.mean(), boundary

    def __call__(self, key, spot, variance, strike):
        history = self.simulate(key, spot, variance)
        price, boundary = self.exercise(history, strike)
        european = jnp.maximum(strike - jnp.exp(history[0][-1]), 0.0).mean()
        return {"american": price, "european": european, "boundary": boundary}


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
    pricer = Pricer(Run(), Market(), mesh)
    everywhere = NamedSharding(mesh, P())
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=everywhere)
    return jax.jit(pricer.__call__, out_shardings=everywhere), (key, number, number, number)
