"""Changed element types and layouts, the latter as copies; casts in user code are named."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line, name_arguments
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import FLOATS, ComparedProgram, array_of_buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from hlomem.hlo.shape import Shape


_CAST = "convert_element_type"


class _Retype(NamedTuple):
    old: str
    new: str


def find_dtypes(comparison: Comparison) -> Iterator[Finding]:
    """Changed types of arguments, else of intermediate values."""
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
    """Changed types of buffers without a visible cast: XLA merges casts and drops their names."""
    retype = None if comparison.has_other_era else _most_common(comparison)
    if retype is not None:
        finding = _finding(retype, "", None)
        if any(entry.change.delta and finding.claims(entry) for entry in comparison.entries):
            yield finding


def find_casts(comparison: Comparison) -> Iterator[Finding]:
    """Casts added to or removed from a line, with new buffers of their type there."""
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


def _casts_by_line(program: ComparedProgram) -> set[tuple[str, str]]:
    return {
        (operation.array.dtype, line)
        for operation in program.operations
        if operation.opcode == "convert" and _CAST in operation.name
        if operation.array is not None and operation.array.dtype in FLOATS
        if (line := program.line(operation)) is not None
    }


def _is_alone_at(side: int, dtype: str, line: str) -> Callable[[Entry], bool]:
    """Claims buffers of this type and line that exist on one side only."""

    def claims(entry: Entry) -> bool:
        if entry.side != side or entry.partner is not None or entry.buffer.source != line:
            return False
        array = array_of_buffer(entry.buffer)
        return array is not None and array.dtype == dtype

    return claims


class _Casts(NamedTuple):
    line: str | None
    """None if they are on several lines."""


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


def _lines(program: ComparedProgram, name: str) -> Iterator[str]:
    for operation in program.operations:
        if operation.name == name and (line := program.line(operation)):
            yield line


def _most_common(comparison: Comparison) -> _Retype | None:
    """The most frequent change of type among operations of one name and shape, else rank."""
    return _most_common_by(comparison, tuple) or _most_common_by(comparison, len)


def _most_common_by(
    comparison: Comparison, form: Callable[[tuple[int, ...]], Hashable]
) -> _Retype | None:
    arrays = [program.float_arrays for program in comparison.programs]
    # An operation with the same array in both programs has not changed its type.
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
    """The type that disappeared and the one that replaced it or was added to it."""
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


def find_layouts(comparison: Comparison) -> Iterator[Finding]:
    """Transposed arguments, else results or arguments whose layout changed."""
    transposed = [pair for pair in comparison.arguments if pair.is_transposed]
    if transposed:
        first = max(transposed, key=lambda pair: pair.after.size)
        names = name_arguments(
            [pair.after for pair in transposed], comparison.after.arguments.values()
        )
        old, new = (f"[{','.join(map(str, side.array.dimensions))}]" for side in first)
        yield _layout_finding(f"arguments ({names}): {old} became {new}")
        return
    old_side, new_side = comparison.programs
    for what, before, after in (
        ("results", old_side.results, new_side.results),
        ("arguments", old_side.entry_parameters, new_side.entry_parameters),
    ):
        changed = [
            (one, two)
            for one, two in zip(before, after, strict=False)
            if len(before) == len(after) and _has_other_layout(one, two)
        ]
        if changed:
            old_shape, new_shape = changed[0]
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            shapes = f"{_with_order(old_shape)} became {_with_order(new_shape)}"
            yield _layout_finding(f"{what}: {shapes}{more}")
            return


def _has_other_layout(one: Shape, other: Shape) -> bool:
    if not (one.is_array and other.is_array):
        return False
    if one.dimensions != other.dimensions:
        return sorted(one.dimensions) == sorted(other.dimensions)
    return _order(one) != _order(other)


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout else ()


def _with_order(shape: Shape) -> str:
    order = ",".join(map(str, _order(shape)))
    return f"{shape.text_without_layout}{{{order}}}"


def _layout_finding(what: str) -> Finding:
    text = f"another layout of {what}"
    return Finding(kind="layout", text=text, claims=_is_copy, adds_operations=True)


def _is_copy(entry: Entry) -> bool:
    buffer = entry.buffer
    name = buffer.name.partition("{")[0]
    is_copying = buffer.opcode is not None and roles.is_copy(name, buffer.opcode)
    return buffer.role == roles.COPIES or is_copying
