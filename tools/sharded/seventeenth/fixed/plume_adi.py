# mypy: ignore-errors
"""Clean. Alternating-direction solver for pollutants: strips of columns, of rows, then back.
"""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Plume:
    """Alternating-direction solver of the spread and chemistry of pollutants over a city."""

    species: int = 24
    nx: int = 2048
    ny: int = 2048
    dx: float = 25.0
    dt: float = 4.0
    eddy: float = 18.0
    deposition: float = 2.0e-4

    @property
    def courant(self):
        return 0.5 * self.dt * self.eddy / self.dx**2

    def elimination(self, n):
        """Coefficients of the Thomas algorithm; the matrix is the same on every line."""
        r = self.courant
        upper = np.zeros(n)
        upper[0] = -r / (1 + r)
        for i in range(1, n):
            diagonal = 1 + (2 * r if i < n - 1 else r)
            upper[i] = -r / (diagonal + r * upper[i - 1])
        below = np.concatenate([[0.0], upper[:-1]])
        diagonal = np.full(n, 1 + 2 * r)
        diagonal[[0, -1]] = 1 + r
        return jnp.asarray(upper, jnp.float32), jnp.asarray(1 / (diagonal + r * below), jnp.float32)


class Layouts:
    """Where fields (species, x, y) live: lines along x whole, lines along y whole, or all species of
    a cell together; and where the maps (kind, x, y) that drive them live."""

    def __init__(self, mesh):
        place = functools.partial(NamedSharding, mesh)
        self.x_lines = place(P("group", None, "strip"))
        self.y_lines = place(P("group", "strip", None))
        self.cells = place(P(None, "strip", "group"))
        self.maps = place(P(None, None, "strip"))
        self.per_species = place(P())


def implicit(field, axis, plume):
    """Solves the implicit half step along one axis of (species, x, y)."""
    upper, inverse = plume.elimination(field.shape[axis])
    lines = jnp.moveaxis(field, axis, 0)

    def forward(previous, row):
        rhs, scale = row
        value = (rhs + plume.courant * previous) * scale
        return value, value

    _, reduced = jax.lax.scan(forward, jnp.zeros_like(lines[0]), (lines, inverse))

    def backward(following, row):
        value, factor = row
        value = value - factor * following
        return value, value

    _, solved = jax.lax.scan(backward, jnp.zeros_like(lines[0]), (reduced, upper), reverse=True)
    return jnp.moveaxis(solved, 0, axis)


def explicit(field, axis, plume):
    """The explicit half step along one axis, with closed boundaries."""
    n = field.shape[axis]
    take = functools.partial(jax.lax.slice_in_dim, field, axis=axis)
    up = jnp.concatenate([take(1, n), take(n - 1, n)], axis=axis)
    down = jnp.concatenate([take(0, 1), take(0, n - 1)], axis=axis)
    return field + plume.courant * (up - 2 * field + down)


def chemistry(field, rates, plume):
    """Sources and sinks of each species, linear in the concentrations of all of them."""
    made = jnp.einsum("st,txy->sxy", rates, field)
    return field + plume.dt * (made - plume.deposition * field)


def step(field, maps, profile, rates, *, plume, layouts):
    """One step: transport along x, along y, then chemistry in every cell."""
    move = jax.lax.with_sharding_constraint
    traffic, sheltered = maps
    field = field + plume.dt * profile[:, None, None] * traffic
    field = move(implicit(explicit(field, 1, plume), 1, plume), layouts.x_lines)
    field = move(field, layouts.y_lines)
    field = move(implicit(explicit(field, 2, plume), 2, plume), layouts.y_lines)
    field = move(chemistry(move(field, layouts.cells), rates, plume), layouts.cells)
    field = move(move(field, layouts.y_lines), layouts.x_lines)
    exposure = jnp.sum(field * sheltered, axis=(1, 2)) * plume.dx**2
    return field, exposure


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("group", "strip"))
    plume = Plume()
    layouts = Layouts(mesh)
    shape = (plume.species, plume.nx, plume.ny)
    advance = jax.jit(
        functools.partial(step, plume=plume, layouts=layouts),
        out_shardings=(layouts.x_lines, layouts.per_species),
        donate_argnums=0,
    )

    def array(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    return advance, (
        array(shape, layouts.x_lines),
        array((2, *shape[1:]), layouts.maps),
        array(shape[:1], layouts.per_species),
        array(shape[:1] * 2, layouts.per_species),
    )
