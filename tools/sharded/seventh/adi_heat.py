# mypy: ignore-errors
"""Fault: reshard. Between the implicit sweeps the field goes from slabs in x to slabs in y by way of a full copy on every
device, where a direct change of sharding would be an all-to-all of slabs."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

NX = NY = NZ = 384
DT_OVER_DX2 = 0.4


def thomas(rhs, lam):
    """Solves (1 + 2 lam) u_i - lam (u_{i-1} + u_{i+1}) = rhs_i along the leading axis."""
    diag = 1.0 + 2.0 * lam

    def forward(c_prev, i):
        c = lam / (diag - lam * c_prev)
        return c, c

    _, c = lax.scan(forward, jnp.float32(0.0), jnp.arange(rhs.shape[0]))
    c_before = jnp.concatenate([jnp.zeros(1), c[:-1]])

    def eliminate(d_prev, inputs):
        r, cp = inputs
        d = (r + lam * d_prev) / (diag - lam * cp)
        return d, d

    _, d = lax.scan(eliminate, jnp.zeros_like(rhs[0]), (rhs, c_before))

    def substitute(u_next, inputs):
        di, ci = inputs
        u = di + ci * u_next
        return u, u

    _, u = lax.scan(substitute, jnp.zeros_like(rhs[0]), (d, c), reverse=True)
    return u


def sweep(u, axis):
    return jnp.moveaxis(thomas(jnp.moveaxis(u, axis, 0), DT_OVER_DX2), 0, axis)


class Slabs:
    def __init__(self, mesh):
        self.x = NamedSharding(mesh, P("slab", None, None))
        self.y = NamedSharding(mesh, P(None, "slab", None))
        self.everywhere = NamedSharding(mesh, P())


def transpose_slabs(u, slabs, target):
    u = lax.with_sharding_constraint(u, slabs.everywhere)  # FAULT
    return lax.with_sharding_constraint(u, target)


def transpose_slabs_direct(u, slabs, target):
    return lax.with_sharding_constraint(u, target)


def adi_step(u, source, slabs, transpose):
    u = u + 0.5 * source
    u = sweep(u, axis=1)
    u = sweep(u, axis=2)
    u = transpose(u, slabs, slabs.y)
    u = sweep(u, axis=0)
    u = transpose(u, slabs, slabs.x)
    return u + 0.5 * source


def solver(devices, transpose, steps=4):
    mesh = Mesh(np.array(devices), ("slab",))
    slabs = Slabs(mesh)

    def advance(u, source):
        def body(_, u):
            return adi_step(u, source, slabs, transpose)

        u = lax.fori_loop(0, steps, body, u)
        residual = jnp.sqrt(jnp.mean(jnp.square(u)))
        return u, residual

    field = jax.ShapeDtypeStruct((NX, NY, NZ), jnp.float32, sharding=slabs.x)
    fn = jax.jit(
        advance,
        in_shardings=(slabs.x, slabs.x),
        out_shardings=(slabs.x, slabs.everywhere),
        donate_argnums=0,
    )
    return fn, (field, field)


def make_faulty(devices):
    return solver(devices, transpose_slabs)


def make_fixed(devices):
    return solver(devices, transpose_slabs_direct)
