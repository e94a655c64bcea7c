"""Other layouts: of arguments or results, or dimensions in another order.

A result that is wanted in another layout than the program computes it in is copied; so is an
argument. The bytes are those of copies that are new or gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, name_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.shape import Shape
    from hlomem.report.data.causes.ledger import Entry


def find_layouts(comparison: Comparison) -> Iterator[Finding]:
    """Transposed arguments, then results and arguments with other layouts."""
    transposed = [pair for pair in comparison.arguments if pair.is_transposed]
    if transposed:
        first = max(transposed, key=lambda pair: pair.after.size)
        names = name_arguments(
            [pair.after for pair in transposed], comparison.after.arguments.values()
        )
        old, new = first.before.array.dimensions, first.after.array.dimensions
        yield _finding(f"another layout of arguments ({names}): {_text(old)} became {_text(new)}")
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
            yield _finding(
                f"another layout of {what}: {_of(old_shape)} became {_of(new_shape)}"
                f"{f' and {len(changed) - 1} more' if len(changed) > 1 else ''}"
            )
            return


def _has_other_layout(one: Shape, other: Shape) -> bool:
    """Whether two arrays of the same elements are laid out, or transposed, differently."""
    if not (one.is_array and other.is_array):
        return False
    if one.dimensions != other.dimensions:
        return sorted(one.dimensions) == sorted(other.dimensions)
    return _order(one) != _order(other)


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout else ()


def _of(shape: Shape) -> str:
    order = ",".join(map(str, _order(shape)))
    return f"{shape.text_without_layout}{{{order}}}"


def _text(dimensions: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dimensions))}]"


def _finding(text: str) -> Finding:
    return Finding(kind="layout", text=text, claims=_is_copy, adds_operations=True)


def _is_copy(entry: Entry) -> bool:
    buffer = entry.buffer
    name = buffer.name.partition("{")[0]
    is_copying = buffer.opcode is not None and roles.is_copy(name, buffer.opcode)
    return buffer.role == roles.COPIES or is_copying
