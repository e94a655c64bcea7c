# mypy: ignore-errors
"""Fault: stack. The states stacked by the scan are gathered whole before the fit, although each step only
needs the current state whole and the fit works on the units where they are.

Echo state network for multivariate telemetry: a random leaky reservoir is driven by the inputs, its states are
collected, and the linear readout is fitted to them by conjugate gradients on the ridge regression.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

UNITS, CHANNELS, TARGETS = 4096, 48, 8
SEQUENCES, STEPS, WASHOUT = 16, 2048, 128
LEAK, RIDGE, CG_STEPS = 0.3, 1e-4, 24


class Reservoir:
    """Leaky tanh units, the rows of the recurrent matrix spread over the chips."""

    def __init__(self, mesh):
        self.rows = NamedSharding(mesh, P("units"))
        self.by_unit = {n: NamedSharding(mesh, P(*(None,) * (n - 1), "units")) for n in (2, 3)}
        self.whole = NamedSharding(mesh, P())

    def gather(self, state):
        return jax.lax.with_sharding_constraint(state, self.whole)

    def spread(self, state):
        return jax.lax.with_sharding_constraint(state, self.by_unit[state.ndim])

    def drive(self, recurrent, feed, inputs):
        """inputs (steps, sequences, channels) -> states (steps, sequences, units)."""

        def step(state, u):
            drive = self.spread(state @ recurrent.T + u @ feed.T)
            local = (1.0 - LEAK) * self.spread(state) + LEAK * jnp.tanh(drive)
            state = self.gather(local)
            return state, local

        start = self.gather(jnp.zeros((inputs.shape[1], UNITS)))
        _, states = jax.lax.scan(step, start, inputs)
        return self.gather(states[WASHOUT:])  # FAULT

    def fit(self, states, wanted):
        """Ridge regression for the readout (units, targets), one CG for all targets."""
        scale = 1.0 / (states.shape[0] * states.shape[1])

        def adjoint(residual):
            grad = jnp.einsum("tsu,tsk->uk", states, residual) * scale
            return jax.lax.with_sharding_constraint(grad, self.rows)

        def normal(w):
            return adjoint(jnp.einsum("tsu,uk->tsk", states, w)) + RIDGE * w

        def body(_, carry):
            w, r, p, rr = carry
            ap = normal(p)
            alpha = rr / jnp.maximum(jnp.sum(p * ap, 0), 1e-20)
            w, r = w + alpha * p, r - alpha * ap
            fresh = jnp.sum(r * r, 0)
            return w, r, r + fresh / jnp.maximum(rr, 1e-20) * p, fresh

        r = adjoint(wanted)
        carry = (jnp.zeros_like(r), r, r, jnp.sum(r * r, 0))
        return jax.lax.fori_loop(0, CG_STEPS, body, carry)[0]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("units",))
    net = Reservoir(mesh)

    def train(recurrent, feed, inputs, wanted):
        states = net.drive(recurrent, feed, inputs)
        readout = net.fit(states, wanted[WASHOUT:])
        error = jnp.einsum("tsu,uk->tsk", states, readout) - wanted[WASHOUT:]
        return readout, jnp.sqrt(jnp.mean(error**2, axis=(0, 1)))

    def struct(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    arguments = (
        struct((UNITS, UNITS), net.rows),
        struct((UNITS, CHANNELS), net.rows),
        struct((STEPS, SEQUENCES, CHANNELS), net.whole),
        struct((STEPS, SEQUENCES, TARGETS), net.whole),
    )
    return jax.jit(train, out_shardings=(net.rows, net.whole)), arguments
