"""Another element type: of arguments, or through casts the program has and had not.

A cast of the author is an operation `convert_element_type`; conversions XLA adds have no name of
their own and prove nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line, name_arguments
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import FLOATS, Program, array_of_buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator


_CAST = "convert_element_type"


class _Retype(NamedTuple):
    """An element type before and after."""

    old: str
    new: str


def find_dtypes(comparison: Comparison) -> Iterator[Finding]:
    """Types of arguments, else types of what is computed."""
    retyped = [p for p in comparison.arguments if p.before.array.dtype != p.after.array.dtype]
    if retyped:
        first = max(retyped, key=lambda pair: pair.after.size)
        retype = _Retype(first.before.array.dtype, first.after.array.dtype)
        names = name_arguments(
            [pair.after for pair in retyped], comparison.after.arguments.values()
        )
        yield _finding(retype, f" (arguments: {names})", None)
        return
    casts = _new_casts(comparison)
    retype_or_none = _most_common(comparison) if casts is not None else None
    if casts is not None and retype_or_none is not None:
        yield _finding(retype_or_none, at_line(casts.line, ", cast at "), casts.line)


def find_inner_dtypes(comparison: Comparison) -> Iterator[Finding]:
    """Types of buffers, where no cast shows: XLA merges casts, and their names are lost."""
    retype = None if comparison.has_other_era else _most_common(comparison)
    if retype is not None:
        finding = _finding(retype, "", None)
        if any(entry.change.delta and finding.claims(entry) for entry in comparison.entries):
            yield finding


def find_casts(comparison: Comparison) -> Iterator[Finding]:
    """Casts at a line that had none, or has none any more, with new buffers of their type there."""
    if comparison.has_other_era:
        return
    old, new = (_casts_by_line(program) for program in comparison.programs)
    for side, casts, word in ((AFTER, new - old, "cast"), (BEFORE, old - new, "no longer cast")):
        for dtype, line in sorted(casts):
            claims = _is_alone_at(side, dtype, line)
            if any(claims(entry) for entry in comparison.entries):
                yield Finding(
                    kind="dtype",
                    text=f"{word} to {dtype}{at_line(line, ' at ')}",
                    claims=claims,
                    source=line,
                    shows_count=True,
                    takes_rest=False,
                )


def _casts_by_line(program: Program) -> set[tuple[str, str]]:
    """The types that are cast to, and where."""
    return {
        (operation.array.dtype, line)
        for operation in program.operations
        if operation.opcode == "convert" and _CAST in operation.name
        if operation.array is not None and operation.array.dtype in FLOATS
        if (line := program.line(operation)) is not None
    }


def _is_alone_at(side: int, dtype: str, line: str) -> Callable[[Entry], bool]:
    """A test of buffers: one of this type and line exists on one side only."""

    def claims(entry: Entry) -> bool:
        if entry.side != side or entry.partner is not None or entry.buffer.source != line:
            return False
        array = array_of_buffer(entry.buffer)
        return array is not None and array.dtype == dtype

    return claims


class _Casts(NamedTuple):
    """Casts that one program has and the other has not."""

    line: str | None
    """Of the only one; None where there are several lines."""


def _new_casts(comparison: Comparison) -> _Casts | None:
    before, after = ({n for n in p.operation_names if _CAST in n} for p in comparison.programs)
    if before == after or comparison.has_other_era:
        return None
    program, names = (
        (comparison.after, after - before)
        if after - before
        else (comparison.before, before - after)
    )
    lines = {line for name in names for line in _lines(program, name)}
    return _Casts(lines.pop() if len(lines) == 1 else None)


def _lines(program: Program, name: str) -> Iterator[str]:
    for operation in program.operations:
        if operation.name == name and (line := program.line(operation)):
            yield line


def _most_common(comparison: Comparison) -> _Retype | None:
    """The change of type that most equal operations have; of equal dimensions, else of any."""
    return _most_common_by(comparison, tuple) or _most_common_by(comparison, len)


def _most_common_by(
    comparison: Comparison, form: Callable[[tuple[int, ...]], Hashable]
) -> _Retype | None:
    """That of operations with the same name whose dimensions have the same form."""
    arrays = [program.float_arrays for program in comparison.programs]
    # An operation that both have, with the same array, cannot have another type.
    changed = {(name, form(array.dimensions)) for name, array in arrays[0] ^ arrays[1]}
    sides: list[dict[Hashable, set[str]]] = []
    for side in arrays if changed else ():
        found: dict[Hashable, set[str]] = {}
        for name, array in side:
            key = (name, form(array.dimensions))
            if key in changed:
                found.setdefault(key, set()).add(array.dtype)
        sides.append(found)
    if not sides:
        return None
    retypes = (_retype(sides[0][key], sides[1][key]) for key in sides[0].keys() & sides[1].keys())
    weights = Counter(retype for retype in retypes if retype is not None)
    return max(weights, key=lambda retype: (weights[retype], retype)) if weights else None


def _retype(before: set[str], after: set[str]) -> _Retype | None:
    """The type that went and the one that came instead, or beside which it came."""
    gone, come = before - after or before, after - before or after
    if before == after or len(gone) != 1 or len(come) != 1:
        return None
    return _Retype(*gone, *come)


def _finding(retype: _Retype, tail: str, line: str | None) -> Finding:
    def claims(entry: Entry) -> bool:
        arrays = [array_of_buffer(b) for b in (entry.change.before, entry.change.after) if b]
        return [array.dtype for array in arrays if array] == [retype.old, retype.new]

    return Finding(
        kind="dtype",
        text=f"{retype.old} became {retype.new}{tail}",
        claims=claims,
        source=line,
        shows_count=True,
        adds_operations=True,
    )
