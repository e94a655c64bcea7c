"""Values as `*-buffer-assignment-values.txt` shows them: name, positions, uses, instruction.

In: values in the order of the dump, each with its name and the text of its instruction. Out: their
text. Mirrors `HloValue::ToString` of `service/hlo_value.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.values import format_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.dump.values import Layout
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex

    FindNumbers = Callable[[HloInstruction, HloInstruction], Sequence[int]]
    Readers = list[list[HloInstruction]]


class Places(dict["ShapeIndex", str]):
    """Index → what a line says of it; each is made once."""

    def __missing__(self, index: ShapeIndex) -> str:
        place = self[index] = format_place(index)
        return place


def format_values(
    rows: Iterable[tuple[HloValue, str, Readers, str]],
    places: Places,
    layout: Layout,
    find_numbers: FindNumbers,
) -> str:
    """The text of values; lines are written here and not by a call for each.

    A row is a value, its name, its readers at each of its positions, and the text of its
    instruction. `find_numbers` says at which numbers an instruction has an operand.
    """
    no_uses, source, end = layout.no_uses, layout.source, layout.end
    pieces = []
    for value, name, readers_at, text in rows:
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
