"""The operations of the dots and convolutions of a jaxpr, on all devices.

Those of scans count as often as they run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flops(NamedTuple):
    """The operations of a program's matrix products."""

    total: int
    has_while: bool = False
    """Whether a loop of unknown length is in it, which counts as one turn."""


def count_flops(jaxpr: Any) -> Flops:
    """The operations of a jaxpr's matrix products."""
    total, has_while = 0, False
    pending: list[tuple[Any, int]] = [(jaxpr, 1)]
    while pending:
        closed, times = pending.pop()
        for equation in getattr(closed, "jaxpr", closed).eqns:
            name = equation.primitive.name
            total += times * _of_equation(name, equation)
            has_while = has_while or name == "while"
            pending += [(inner, times * _turns(name, equation)) for inner in _inner(equation)]
    return Flops(total, has_while)


def _turns(name: str, equation: Any) -> int:
    """How often what an equation calls is computed: in each iteration, or on each device."""
    parameters = equation.params
    if name == "scan":
        return int(parameters.get("length", 1))
    if name == "shard_map":
        sizes = parameters["mesh"].shape
        manual = parameters.get("newly_manual_axes", parameters.get("manual_axes", ()))
        return math.prod(sizes[axis] for axis in manual)
    return 1


def _of_equation(name: str, equation: Any) -> int:
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        inner = math.prod(left[dimension] for dimension in contracted)
        return int(2 * inner * math.prod(equation.outvars[0].aval.shape))
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return int(2 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) // features)
    return 0


def _inner(equation: Any) -> Iterator[Any]:
    """The jaxprs an equation calls."""
    for parameter in equation.params.values():
        for value in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
                yield value
