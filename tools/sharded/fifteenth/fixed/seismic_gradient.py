# mypy: ignore-errors
"""Fixed."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
SHOTS, NX, NZ, STEPS, EVERY = 8, 1024, 512, 768, 8

FIELD = P("shot", "x")
HISTORY = P(None, "shot", "x")


class Acquisition(NamedTuple):
    source_x: jax.Array     # shots
    wavelet: jax.Array      # steps
    receivers: jax.Array    # traces x NX
    recorded: jax.Array     # steps x shots x traces


def laplacian(u):
    p = jnp.pad(u, ((0, 0), (1, 1), (1, 1)))
    return p[:, 2:, 1:-1] + p[:, :-2, 1:-1] + p[:, 1:-1, 2:] + p[:, 1:-1, :-2] - 4 * u


def leap(state, c2, force):
    previous, now = state
    return now, 2 * now - previous + c2 * laplacian(now) + force


class Imaging:
    def __init__(self, mesh):
        self.mesh = mesh

    def keep(self, u, spec):
        return jax.lax.with_sharding_constraint(u, NamedSharding(self.mesh, spec))

    def quiet(self):
        zero = self.keep(jnp.zeros((SHOTS, NX, NZ)), FIELD)
        return zero, zero

    def forward(self, c2, acq):
        x, z = jnp.arange(NX), jnp.arange(NZ)
        shape = (x[None, :, None] == acq.source_x[:, None, None]) & (z == 2)

        def chunk(state, wavelet):
            def one(state, w):
                state = leap(state, c2, w * shape)
                return state, state[1][:, :, 2] @ acq.receivers.T

            state, traces = jax.lax.scan(one, state, wavelet)
            return state, (state[1], traces)

        _, (fields, traces) = jax.lax.scan(chunk, self.quiet(), acq.wavelet.reshape(-1, EVERY))
        return self.keep(fields, HISTORY), traces.reshape(STEPS, SHOTS, -1)

    def image(self, c2, acq):
        fields, traces = self.forward(c2, acq)
        residual = traces - acq.recorded

        def chunk(carry, inputs):
            state, total = carry
            field, res = inputs

            def one(state, r):
                force = (r @ acq.receivers)[:, :, None] * (jnp.arange(NZ) == 2)
                return leap(state, c2, self.keep(force, FIELD)), None

            state, _ = jax.lax.scan(one, state, res, reverse=True)
            return (state, total + self.keep(field * state[1], FIELD).sum(0)), None

        start = self.quiet(), jnp.zeros((NX, NZ))
        (_, total), _ = jax.lax.scan(chunk, start, (fields, residual.reshape(-1, EVERY, *residual.shape[1:])), reverse=True)
        return c2 - 1e-3 * total / jnp.abs(total).max(), jnp.mean(residual**2), fields


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("shot", "x"))
    on = lambda *axes: NamedSharding(mesh, P(*axes))
    shape = lambda s, sharding, dtype=jnp.float32: jax.ShapeDtypeStruct(s, dtype, sharding=sharding)
    traces = 128
    acq = Acquisition(shape((SHOTS,), on("shot"), jnp.int32), shape((STEPS,), on()), shape((traces, NX), on(None, "x")),
                      shape((STEPS, SHOTS, traces), on(None, "shot")))
    run = jax.jit(Imaging(mesh).image, out_shardings=(on("x"), on(), on(*HISTORY)))
    return run, (shape((NX, NZ), on("x")), acq)
