"""Values as `*-buffer-assignment-values.txt` shows them: name, positions, uses, instruction.

In: values in the order of the dump, each with its name and the text of its instruction. Out: their
text. There are two of it: `format_in_python` needs nothing but Python; `_value_lines.c`, where it
was built, is several times as fast and writes the same. Mirrors `HloValue::ToString` of
`service/hlo_value.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.native import kernel
from hlomem.dump.values import format_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.dump.values import Layout
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex

    FindNumbers = Callable[[HloInstruction, HloInstruction], Sequence[int]]
    Readers = list[list[HloInstruction]]

_format: Callable[..., str] | None = kernel("hlomem.write._value_lines", "format")
IS_NATIVE = _format is not None


class Places(dict["ShapeIndex", str]):
    """Index → what a line says of it; each is made once."""

    def __missing__(self, index: ShapeIndex) -> str:
        place = self[index] = format_place(index)
        return place


def format_values(
    values: Sequence[HloValue],
    names: Sequence[str],
    readers: Sequence[Readers],
    texts: Sequence[str],
    places: Places,
    layout: Layout,
    find_numbers: FindNumbers,
) -> str:
    """The text of values.

    `readers` are those of a value at each of its positions. `find_numbers` says at which numbers an
    instruction has an operand.
    """
    form = (layout.no_uses, layout.source, layout.end)
    write = format_in_python if _format is None else _format
    lists = (tuple(values), tuple(names), tuple(readers), tuple(texts))
    return write(*lists, places, form, find_numbers)


def format_in_python(
    values: Sequence[HloValue],
    names: Sequence[str],
    readers: Sequence[Readers],
    texts: Sequence[str],
    places: Places,
    form: tuple[str, str, str],
    find_numbers: FindNumbers,
) -> str:
    """The text of values; lines are written here and not by a call for each."""
    no_uses, source, end = form
    pieces = []
    for value, name, readers_at, text in zip(values, names, readers, texts, strict=True):
        positions = uses = ""
        for (holder, index), users in zip(value.positions, readers_at, strict=True):
            place = places[index] if holder.shape.is_tuple else ""
            positions += f"  {holder.name}{place}\n"
            for user in users:
                for number in find_numbers(user, holder):
                    uses += f"  {user.name}, operand {number}{place}\n"
        used = f" uses:\n{uses}" if uses else no_uses
        pieces.append(f"{name}\n positions:\n{positions}{used}{source}{text}{end}")
    return "".join(pieces)
