"""Scratch of kernels that has to be in memory, and scratch that libtpu may drop.

libtpu drops scratch that is never read, and forwards what one step of the grid writes to what the
same step reads. What is read before it is certainly written holds values of an earlier step, and
what is copied to or from has to be somewhere. A condition on a dimension of the grid with a
single step always holds: then nothing is certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Access: TypeAlias = Literal["read", "write", "copy"]
_KINDS: dict[str, _Access] = {"get": "read", "load": "read", "swap": "write", "store": "write"}


def must_be_kept(jaxpr: Any, variable: Any, grid: Sequence[int]) -> bool:
    """Whether the first access that counts is a read or a copy."""
    first = next(_iter_accesses(jaxpr, variable), "write")
    if first == "copy":
        return True
    is_constant = any(axis >= len(grid) or grid[axis] == 1 for axis in _iter_axes(jaxpr))
    return first == "read" and any(size != 1 for size in grid) and not is_constant


def _iter_axes(jaxpr: Any) -> Iterator[int]:
    """The dimensions of the grid that a kernel asks its position in."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "program_id":
            yield int(equation.params["axis"])
        for inner in (*_jaxprs_in(equation), *equation.params.get("branches", ())):
            yield from _iter_axes(inner)


def _iter_accesses(jaxpr: Any, variable: Any) -> Iterator[_Access]:
    """The accesses of a reference in order, without writes that only may happen."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        at = [number for number, one in enumerate(equation.invars) if one is variable]
        if not at:
            continue
        name = equation.primitive.name
        branches = equation.params.get("branches")
        if branches is not None:
            yield from _of_branches(equation, branches, at[0])
        elif "dma" in name or "copy" in name:
            yield "copy"
        elif kind := next((kind for word, kind in _KINDS.items() if word in name), None):
            yield kind
        else:
            for inner in _jaxprs_in(equation):
                yield from _of_inner(equation, inner, at[0])


def _of_branches(equation: Any, branches: Any, at: int) -> Iterator[_Access]:
    """A read of any branch counts; a write only if every branch begins with one."""
    firsts = [next(_of_inner(equation, branch, at), None) for branch in branches]
    for kind in firsts:
        if kind is not None and kind != "write":
            yield kind
    if firsts and all(kind == "write" for kind in firsts):
        yield "write"


def _of_inner(equation: Any, inner: Any, at: int) -> Iterator[_Access]:
    """Accesses within a loop or call: its operands are the last of the equation's."""
    variables = getattr(inner, "jaxpr", inner).invars
    number = at - (len(equation.invars) - len(variables))
    if 0 <= number < len(variables):
        yield from _iter_accesses(inner, variables[number])


def _jaxprs_in(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        if hasattr(getattr(value, "jaxpr", value), "eqns"):
            yield value
