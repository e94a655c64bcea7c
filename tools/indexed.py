"""Below what the integers of a program's arguments have to lie: the sizes of what they index.

An argument is followed through the program, a jaxpr, to where it says a place of an array: in
gathers, scatters and dynamic slices, in a choice of branches, and where it is compared with the
numbers of places (`one_hot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KEPT = frozenset(
    {
        "broadcast_in_dim",
        "convert_element_type",
        "copy",
        "copy_p",
        "dynamic_slice",
        "expand_dims",
        "gather",
        "reshape",
        "rev",
        "sharding_constraint",
        "slice",
        "split",
        "squeeze",
        "stop_gradient",
        "transpose",
        "unstack",
    }
)
"""What hands on the numbers of its first operand."""
_CHOSEN = frozenset({"select_n", "clamp"})
"""What hands on those of all operands but its first, or numbers that bound them."""
_SHIFTED = frozenset({"add", "sub", "max", "min"})
"""What hands on those of one operand, if the other is one number: -1 is the last place."""


class _Source(NamedTuple):
    """Where numbers come from."""

    argument: int
    column: int | None = None
    """Which of the coordinates of a place they are; None where that is not known."""


_Sources = frozenset[_Source]
_NONE: _Sources = frozenset()


def index_bounds(jaxpr: Any) -> list[int | None]:
    """The least size of what each argument indexes; None for one that indexes nothing."""
    found: list[int | None] = [None] * len(jaxpr.invars)
    for argument, bound in _Walk().run(jaxpr, [frozenset({_Source(i)}) for i in range(len(found))]):
        least = found[argument]
        if bound > 1:  # there is a choice
            found[argument] = bound if least is None else min(least, bound)
    return found


class _Walk:
    """Goes through a jaxpr and what it calls, once each time it is called."""

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []

    def run(self, jaxpr: Any, given: Sequence[_Sources]) -> list[tuple[int, int]]:
        """Arguments, and below what they have to lie."""
        self._of(jaxpr, given)
        return self.bounds

    def _of(self, jaxpr: Any, given: Sequence[_Sources]) -> list[_Sources]:
        """Where the results of a jaxpr come from."""
        known = dict(zip(jaxpr.invars, given, strict=True))
        counted: dict[Any, int] = {}
        """Arrays of the numbers of places, and how many places these are."""

        def sources(atom: Any) -> _Sources:
            return _NONE if hasattr(atom, "val") else known.get(atom, _NONE)

        for equation in jaxpr.eqns:
            operands = [sources(atom) for atom in equation.invars]
            _count(equation, counted)
            if not any(operands):
                continue
            self._note(equation, operands, counted)
            known.update(zip(equation.outvars, self._results(equation, operands), strict=True))
        return [sources(atom) for atom in jaxpr.outvars]

    def _note(self, equation: Any, operands: list[_Sources], counted: dict[Any, int]) -> None:
        """Keep what an equation indexes."""
        for place, sizes in _indexed(equation):
            for source in operands[place]:
                known = source.column is not None and source.column < len(sizes)
                some = [sizes[source.column]] if known and source.column is not None else sizes
                self.bounds += [(source.argument, size) for size in some]
        if equation.primitive.name == "eq":
            for place, other in ((0, 1), (1, 0)):
                atom = equation.invars[other]
                size = None if hasattr(atom, "val") else counted.get(atom)
                if size is not None:
                    self.bounds += [(source.argument, size) for source in operands[place]]

    def _results(self, equation: Any, operands: list[_Sources]) -> list[_Sources]:
        """Where the results of an equation come from."""
        name, results = equation.primitive.name, len(equation.outvars)
        if name == "concatenate":
            return [_joined(_columns(equation, operands))]
        if name in _KEPT:
            kept = operands[0] if name == "convert_element_type" else _whole(operands[0])
            return [kept] * results
        if name == "stack":
            return [_whole(_joined(operands))]
        if name in _CHOSEN:
            return [_whole(_joined(operands[1:]))]
        if name in _SHIFTED:
            plain = [not atom.aval.shape for atom in equation.invars]
            return [_whole(_joined(operands)) if any(plain) else _NONE]
        if name == "optimization_barrier":
            return operands
        found = [_NONE] * results
        for inside, passed in _called(equation, operands):
            made = self._of(inside, passed)
            if len(made) == results:
                found = [_joined(pair) for pair in zip(found, made, strict=True)]
        return found


def _joined(some: Iterable[_Sources]) -> _Sources:
    return _NONE.union(*some)


def _whole(sources: _Sources) -> _Sources:
    return frozenset(_Source(source.argument) for source in sources)


def _columns(equation: Any, operands: Sequence[_Sources]) -> Iterator[_Sources]:
    """The operands of a concatenation, as coordinates where it is one of coordinates."""
    is_last = equation.params["dimension"] == len(equation.outvars[0].aval.shape) - 1
    column = 0
    for atom, sources in zip(equation.invars, operands, strict=True):
        width = atom.aval.shape[-1]
        is_one = is_last and width == 1
        yield frozenset(_Source(one.argument, column if is_one else None) for one in sources)
        column += width


def _count(equation: Any, counted: dict[Any, int]) -> None:
    """Note arrays of the numbers of places."""
    name = equation.primitive.name
    if name == "iota":
        counted[equation.outvars[0]] = equation.params["shape"][equation.params["dimension"]]
    elif name in _KEPT and not hasattr(equation.invars[0], "val"):
        size = counted.get(equation.invars[0])
        if size is not None:
            counted[equation.outvars[0]] = size


def _indexed(equation: Any) -> Iterator[tuple[int, list[int]]]:
    """Operands of an equation that say places, and of how many."""
    name, params = equation.primitive.name, equation.params
    shape = getattr(equation.invars[0].aval, "shape", ()) if equation.invars else ()
    if name == "gather":
        axes = params["dimension_numbers"].start_index_map
        yield 1, [shape[axis] - params["slice_sizes"][axis] + 1 for axis in axes]
    elif name.startswith("scatter"):
        yield 1, [shape[axis] for axis in params["dimension_numbers"].scatter_dims_to_operand_dims]
    elif name == "dynamic_slice":
        for axis, size in enumerate(params["slice_sizes"]):
            yield 1 + axis, [shape[axis] - size + 1]
    elif name == "dynamic_update_slice":
        for axis, size in enumerate(equation.invars[1].aval.shape):
            yield 2 + axis, [shape[axis] - size + 1]
    elif name == "cond":
        yield 0, [len(params["branches"])]


def _called(
    equation: Any, operands: Sequence[_Sources]
) -> Iterator[tuple[Any, Sequence[_Sources]]]:
    """What an equation calls, with the operands it passes; a loop is gone through once."""
    name, params = equation.primitive.name, equation.params
    if name == "while":
        first, second = params["cond_nconsts"], params["body_nconsts"]
        yield _open(params["cond_jaxpr"]), [*operands[:first], *operands[first + second :]]
        yield _open(params["body_jaxpr"]), operands[first:]
        return
    passed = operands[1:] if name == "cond" else operands
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            inside = _open(one)
            if hasattr(inside, "eqns") and len(inside.invars) == len(passed):
                yield inside, passed


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)
