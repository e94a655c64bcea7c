"""The origin of each value: the operation that computes it, and the line of user code.

Loops hand on the origin of the producer. Without metadata, the line is that of the repeated value,
of fused instructions, of readers or of operands, and the origin names it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import SAME_DATA, Opcode
from hlomem.report.data import roles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.report.data.lines import Lines, Origin
    from hlomem.view.joined import JoinedDump, PlacedValue

    _Neighbours = Callable[[PlacedValue], Iterator[tuple[str, list[PlacedValue]]]]
    """The neighbouring instructions of a value, each with the values to search next."""

_UPDATE = "dynamic_update_slice"
_FILE, _FRAME = "source_file", "stack_frame_id"
"""The metadata fields that lead to a line; the second through the stack frame tables."""
_MAX_HOPS = 4
_MAX_VISITS = 64


class Origins:
    def __init__(
        self,
        joined: JoinedDump,
        lines: Lines,
        families: Mapping[PlacedValue, Sequence[PlacedValue]],
        loop_roles: Mapping[PlacedValue, str],
        module: HloModule | None = None,
    ) -> None:
        self._joined = joined
        self._lines = lines
        self._families = families
        self._loop_roles = loop_roles
        self._module = module
        self._found: dict[PlacedValue, Origin] = {}
        self._fused_by_name: dict[str, Origin | None] = {}
        self._line_by_name: dict[str, Origin | None] = {}

    def find(self, placed: PlacedValue) -> Origin:
        """The origin of a value, as far as it or its neighbours tell."""
        if not placed.value.is_phi and placed not in self._loop_roles:  # the common case
            said = self._lines.origin(placed.used.instruction if placed.used else "")
            if said.op_name and (said.line or not self.tells_lines):
                return said
        found = self._found.get(placed)
        if found is None:
            found = self._found[placed] = self._find(placed)
        return found

    def _find(self, placed: PlacedValue) -> Origin:
        found = self._named(placed)
        if found.line or not self.tells_lines or self._is_argument(placed):
            return found
        fused = self._fused(placed.value.name)
        if fused is not None and fused.line:
            return fused._replace(op_name=found.op_name or fused.op_name, told_by="what it fuses")
        for teller, others in (
            ("source", self._sources),
            ("reader", self._readers),
            ("operand", self._operands),
        ):
            for name, told in self._search(placed, others):
                return found._replace(
                    line=told.line, frames=told.frames, told_by=f"its {teller} {name}"
                )
        return found

    def _named(self, placed: PlacedValue) -> Origin:
        if self._loop_roles.get(placed) == roles.STACKED and (found := self._written(placed)):
            return found
        return self._computed(placed)

    def _is_argument(self, placed: PlacedValue) -> bool:
        text = self._joined.printed.get(placed.value.name)
        is_entrys = placed.allocation.parameter is not None
        return is_entrys and text is not None and text.opcode == "parameter"

    def _computed(self, placed: PlacedValue, hops: int = _MAX_HOPS) -> Origin:
        """The origin of a value's producer, looking through loops and copies."""
        makers = self._makers(placed) if placed.value.is_phi else [placed]
        said = [self._said(maker) for maker in makers]
        if hops and not any(origin.op_name for origin in said):
            for source in self._handed_on(makers):
                told = self._computed(source, hops - 1)
                said.append(
                    told._replace(told_by=told.told_by or f"its source {source.value.name}")
                )
        return next((origin for origin in said if origin.op_name), said[0])

    def _said(self, placed: PlacedValue) -> Origin:
        return self._lines.origin(placed.used.instruction if placed.used else "")

    def _makers(self, phi: PlacedValue) -> list[PlacedValue]:
        """The values merged by a phi."""
        family = self._families.get(phi, ())
        return [maker for maker in family if maker.used and not maker.value.is_phi] or [phi]

    def _handed_on(self, makers: Iterable[PlacedValue]) -> Iterator[PlacedValue]:
        for maker in makers:
            text = self._joined.printed.get(maker.value.name)
            if text is not None and _is_same_data(maker.value.name, text.opcode):
                yield from (read for _, read in self._joined.read_by.get((maker.value.name, 0), ()))

    def _written(self, placed: PlacedValue) -> Origin | None:
        """The origin of a stacked value's slices; None if no update is found."""
        family = self._families.get(placed, (placed,))
        for writer in family:
            text = self._joined.printed.get(writer.value.name)
            if text is None or not text.op_name.endswith(_UPDATE):
                continue
            read = [
                value
                for number in range(len(text.operands))
                for _, value in self._joined.read_by.get((writer.value.name, number), ())
                if value not in family and 1 < value.value.size < writer.value.size
            ]
            for value in sorted(read, key=lambda value: (-value.value.size, value.id)):
                if (found := self._computed(value)).op_name:
                    return found
        return None

    @cached_property
    def tells_lines(self) -> bool:
        marks = [_FILE]
        if self._module is not None:
            if self._module.stack_frame_tables.are_given:
                marks.append(_FRAME)
            creation = self._module.creation
            if creation is not None:  # read from a proto, without text
                if creation.tells_lines():
                    return True
            elif any(map(self._module.source.text.__contains__, marks)):
                return True
        return any(map("\n".join(self._joined.text_of.values()).__contains__, marks))

    @property
    def _instructions(self) -> dict[str, HloInstruction]:
        return self._module.outer_instruction_by_name if self._module else {}

    def _fused(self, name: str) -> Origin | None:
        """The first origin with a line inside a fusion, from its root."""
        if name not in self._fused_by_name:
            self._fused_by_name[name] = self._find_fused(name)
        return self._fused_by_name[name]

    def _find_fused(self, name: str) -> Origin | None:
        instruction = self._instructions.get(name)
        if instruction is None or instruction.opcode != "fusion":
            return None
        said = map(self._lines.origin_in, _from_root(instruction.called_computations[0]))
        return next((origin for origin in said if origin.line), None)

    def said_by(self, name: str) -> Origin | None:
        """The origin in an instruction's own metadata; None if it is unknown."""
        text = self._joined.text_of.get(name)
        if text is not None:
            return self._lines.origin(text)
        if name in self._instructions:
            return self._lines.origin_in(self._instructions[name])
        return None

    def _line_of(self, name: str) -> Origin | None:
        """The origin of an instruction that has a line, its own or a fused one's."""
        if name not in self._line_by_name:
            origin = self.said_by(name)
            if origin is not None and not origin.line:
                origin = self._fused(name)
            self._line_by_name[name] = origin if origin is not None and origin.line else None
        return self._line_by_name[name]

    def _search(self, placed: PlacedValue, others: _Neighbours) -> Iterator[tuple[str, Origin]]:
        seen = {placed}
        pending = [placed]
        for value in pending:
            if len(seen) > _MAX_VISITS:
                return
            for name, following in others(value):
                told = self._line_of(name)
                if told is not None:
                    yield name, told
                    return
                for other in following:
                    if other not in seen:
                        seen.add(other)
                        pending.append(other)

    def _sources(self, placed: PlacedValue) -> Iterator[tuple[str, list[PlacedValue]]]:
        """The repeated value, unless it is an argument, which has no line."""
        makers = self._makers(placed) if placed.value.is_phi else [placed]
        for source in self._handed_on(makers):
            if not self._is_argument(source):
                yield source.value.name, [source]

    def _readers(self, placed: PlacedValue) -> Iterator[tuple[str, list[PlacedValue]]]:
        """The readers of a value in schedule order, and the values they define."""
        times = self._joined.time_of
        family = self._families.get(placed, (placed,))
        names = {name for member in family for name in member.users}
        for name in sorted(names, key=lambda name: (times.get(name, -1), name)):
            indices = self._joined.indices_at.get(name, ())
            yield name, [v for index in indices for v in self._joined.values_at[name, index]]

    def _operands(self, placed: PlacedValue) -> Iterator[tuple[str, list[PlacedValue]]]:
        text = self._joined.printed.get(placed.value.name)
        for number in range(len(text.operands) if text else 0):
            for _, read in self._joined.read_by.get((placed.value.name, number), ()):
                if not self._is_argument(read):
                    yield read.value.name, [read]


def _from_root(computation: HloComputation) -> Iterator[HloInstruction]:
    pending = [computation.root]
    seen = set(pending)
    for instruction in pending:
        yield instruction
        new = [operand for operand in instruction.operands if operand not in seen]
        seen.update(new)
        pending.extend(new)


def _is_same_data(name: str, opcode: Opcode) -> bool:
    is_part = opcode == "slice" or opcode == "dynamic-slice"
    return is_part or opcode in SAME_DATA or roles.is_copy(name, opcode)
