"""Buffers: every value of a dump with its location, lifetime, role and source line."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.base.errors import HlomemError
from hlomem.base.quantities import (  # noqa: TC001 - msgspec reads them
    AllocationIndex,
    ByteCount,
    Color,
    Offset,
    Step,
    ValueId,
)
from hlomem.dump.records import LiveRange, Parameter, Record
from hlomem.hlo.padding import unpadded_size
from hlomem.report.data import roles
from hlomem.report.data.allocation_kinds import kind_of
from hlomem.report.data.lines import Frame, Lines, Origin
from hlomem.report.data.origins import Origins
from hlomem.report.data.value_roles import Movements, ValueRoles, may_repeat
from hlomem.view.control_flow import Structure, find_structure
from hlomem.view.families import find_alias_classes
from hlomem.view.joined import JoinedDump, PlacedValue, display_name
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.opcodes import Opcode


class Buffer(Record, frozen=True):
    """A value at [offset, offset + size) of an allocation, live from `start` to `end`."""

    id: ValueId
    """XLA's number of the value."""
    name: str
    """As XLA prints it: `while.5{1}`."""
    size: ByteCount
    padding: int
    """Bytes of it that hold no element."""
    shape: str
    allocation: AllocationIndex
    offset: Offset
    color: Color
    """The memory space."""
    start: Step | None
    end: Step | None
    """The last live step; None, like `start`, if the dump does not say."""
    role: str
    """The buffer's own role, independent of its location."""
    place: str
    """The kind of its allocation (`allocation_kinds`)."""
    moved: str | None
    """How XLA moved it here: `moved from vmem to hbm`; None for other values."""
    opcode: Opcode | None
    op_name: str | None
    source: str | None
    """`file:line` of the user's code."""
    told_by: str | None
    """The instruction that line comes from, if not its own: `its reader fusion.3`."""
    parameter: str | None
    """The argument whose memory it lies in, by JAX path or number."""
    result: str | None = None
    """Its path in the program's result, `result[0]['w']`; None if it is no result or unknown."""

    @property
    def elements(self) -> str:
        return self.shape.partition("{")[0]

    def shares_bytes_with(self, other: Buffer) -> bool:
        return (
            self.allocation == other.allocation
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )

    def is_live_at(self, step: int) -> bool:
        return self.start is not None and self.end is not None and self.start <= step <= self.end


class Stay(Struct, frozen=True, gc=False):
    """Location and lifetime of a value only: a `Buffer` takes longer to build."""

    id: ValueId
    name: str
    size: ByteCount
    offset: Offset
    start: Step | None
    end: Step | None
    role: str = roles.TEMPORARIES
    """Not looked up: the same for all."""

    def is_live_at(self, step: int) -> bool:
        return self.start is not None and self.end is not None and self.start <= step <= self.end


class BufferBuilder:
    def __init__(
        self,
        joined: JoinedDump,
        module: HloModule | None,
        space_name: Callable[[int], str],
        results: Sequence[str] = (),
    ) -> None:
        self._joined = joined
        self._module = module
        self._space_name = space_name
        self._results = results
        self._steps = len(joined.sequence)

    def life(self, placed: PlacedValue) -> LiveRange | None:
        """The live range of a value, if it is within the schedule."""
        life = placed.life
        if life is not None and not 0 <= life.start <= life.end <= self._steps:
            return None
        return life

    def stay(self, placed: PlacedValue) -> Stay:
        value, life = placed.value, self.life(placed)
        name = value.name if value.index is None else display_name(value)
        if life is None:
            return Stay(value.id, name, value.size, value.offset, None, None)
        return Stay(value.id, name, value.size, value.offset, life.start, life.end)

    @cached_property
    def build(self) -> Callable[[PlacedValue], Buffer]:
        """A function from a value to its `Buffer`, with all tables bound: it is called often."""
        printed, results = self._joined.printed, self._result_names
        parameters, life_of = self.parameter_names, self.life
        find_origin, find_movement = self._origins.find, self._movements.find
        find_role = self._roles.find

        def build(placed: PlacedValue) -> Buffer:
            value, allocation, life = placed.value, placed.allocation, life_of(placed)
            name, size, shape = value.name, value.size, value.shape
            text = printed.get(name)
            opcode = None if text is None else text.opcode
            op_name, _, line, told_by = find_origin(placed)
            repeats = opcode is not None and may_repeat(name, opcode)
            moved = find_movement(placed) if repeats else None
            return Buffer(  # by position: keywords would double the time
                value.id,
                name if value.index is None else display_name(value),
                size,
                padding_of(shape, size),
                shape,
                allocation.index,
                value.offset,
                allocation.color,
                None if life is None else life.start,
                None if life is None else life.end,
                find_role(placed, moved, op_name),
                kind_of(allocation),
                moved.how if moved is not None and moved.keeps_role else None,
                opcode,
                op_name,
                line,
                told_by,
                parameters.get(allocation.index),
                results.get(value.id),
            )

        return build

    def frames(self, placed: PlacedValue) -> tuple[Frame, ...]:
        return self._origins.find(placed).frames

    def origin_of_instruction(self, name: str) -> Origin | None:
        """The origin of an instruction, or else of the value it defines."""
        said = self._origins.said_by(name)
        if said is not None and (said.line or not self._origins.tells_lines):
            return said
        defined = [
            placed
            for index in self._joined.indices_at.get(name, ())
            for placed in self._joined.values_at[name, index]
            if placed.value.name == name
        ]
        told = max(map(self._origins.find, defined), key=lambda one: one.line or "", default=None)
        return told._replace(op_name=said.op_name if said else None) if told else said

    @cached_property
    def role_of_allocation(self) -> dict[int, str | None]:
        """The role of each allocation; None for temporaries, whose values differ."""
        return {
            allocation.index: self._roles.role_of_allocation(allocation)
            for allocation in self._joined.allocations
        }

    @cached_property
    def parameter_names(self) -> dict[int, str]:
        names: dict[int, str] = {
            allocation.index: _parameter_number(allocation.parameter)
            for allocation in self._joined.allocations
            if allocation.parameter is not None
        }
        for placed in self._joined.placed:
            if placed.allocation.parameter is None or placed.value.is_phi:
                continue
            text = self._joined.printed.get(placed.value.name)
            if text is not None and text.opcode == "parameter" and (name := text.op_name):
                names[placed.allocation.index] = name
        return names

    @cached_property
    def _result_names(self) -> dict[int, str]:
        paths = self._results
        parts = list(iter_results(self._joined, self._module)) if paths else []
        if len(parts) != len(paths):
            return {}
        named: dict[int, str] = {}
        for part, path in zip(parts, paths, strict=True):
            named.setdefault(part.placed.id, f"{_WHOLE}{path}")
        return named

    @cached_property
    def structure(self) -> Structure:
        return find_structure(self._joined)

    @cached_property
    def families(self) -> dict[PlacedValue, list[PlacedValue]]:
        families = find_alias_classes(self._joined, self.structure)
        members = families.members(self._joined.placed).values()
        return {placed: family for family in members for placed in family}

    @property
    def loop_roles(self) -> dict[PlacedValue, str]:
        return self._roles.of_loops

    @cached_property
    def _movements(self) -> Movements:
        return Movements(self._joined, self._space_name)

    @cached_property
    def _roles(self) -> ValueRoles:
        names = self.parameter_names
        return ValueRoles(self._joined, self.families, self._movements, names, self._module)

    @cached_property
    def _origins(self) -> Origins:
        lines = Lines(self._module)
        return Origins(self._joined, lines, self.families, self.loop_roles, self._module)


@lru_cache(maxsize=4096)
def padding_of(shape_text: str, size: int) -> int:
    """Bytes of an array that hold no element; 0 if the shape does not say."""
    shape = parse_shape_or_none(shape_text)
    if shape is None or not shape.is_array or shape.dynamic:
        return 0
    try:
        return max(0, size - unpadded_size(shape))
    except HlomemError:
        return 0


def _parameter_number(parameter: Parameter) -> str:
    index = f" {{{','.join(map(str, parameter.index))}}}" if parameter.index else ""
    return f"parameter {parameter.number}{index}"


_LAYOUTS = re.compile(r"\{[^{}]*\}")
_WHOLE = "result"


class ResultPart(NamedTuple):
    output_index: tuple[int, ...]
    placed: PlacedValue


def iter_results(joined: JoinedDump, module: HloModule | None) -> Iterator[ResultPart]:
    root = _root_name(joined, module)
    parts: dict[tuple[int, ...], PlacedValue] = {}
    for placed in joined.placed:  # faster than indexing all positions
        for position in placed.positions:
            if position.instruction == root:
                parts.setdefault(position.index or (), placed)
    for index in sorted(parts):
        if not parts[index].value.shape.startswith("("):
            yield ResultPart(tuple(index), parts[index])


def _root_name(joined: JoinedDump, module: HloModule | None) -> str:
    """The instruction that returns the program's result; "" if unknown."""
    if module is not None:
        return module.entry.root.name
    output = joined.output
    if output is None or _LAYOUTS.sub("", output.value.shape) != output.allocation.output_shape:
        return ""  # another value of that allocation
    return output.value.name
