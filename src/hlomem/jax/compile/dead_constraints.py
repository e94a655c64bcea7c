"""Constraints whose values a traced program does not use: JAX drops them before XLA sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRIMITIVE = "sharding_constraint"


def dead_constraints(jaxpr: Any) -> tuple[str, ...]:
    """`file:line` of constraints of which no value is used; only lines where none is."""
    dead: dict[str, None] = {}
    used: set[str] = set()
    for line, is_used in _constraints(getattr(jaxpr, "jaxpr", jaxpr)):
        if is_used:
            used.add(line)
        else:
            dead[line] = None
    return tuple([line for line in dead if line not in used])


def _constraints(jaxpr: Any) -> Iterator[tuple[str, bool]]:
    """The lines of constraints, and whether an equation or a result reads their values."""
    read = {id(var) for var in jaxpr.outvars}
    read |= {id(var) for equation in jaxpr.eqns for var in equation.invars}
    for equation in jaxpr.eqns:
        line = _line(equation) if equation.primitive.name == _PRIMITIVE else ""
        if line:
            yield line, any(id(var) in read for var in equation.outvars)
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _constraints(inner)


def _line(equation: Any) -> str:
    """The line of the user's code that asks for a constraint."""
    trace = getattr(equation.source_info, "traceback", None)
    for frame in getattr(trace, "frames", ()):
        if is_users(frame.file_name):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
