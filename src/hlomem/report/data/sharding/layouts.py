"""The layout of each array over the devices: whole shape, shape on a device, axes of the mesh.

In: the memory of a partitioned program, and the program before partitioning. Out: `Layout`s of
arguments, results and other values. A value is found in the program before partitioning by JAX's
name of its operation; its axes follow from both shapes where no sharding is written. What is not
known is None.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import SAME_DATA
from hlomem.hlo.sharding import Axis, Mesh, Sharding
from hlomem.report.data.sharding.whole_program import WholeProgram, WholeValue
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.memory import MemoryView

_MAX_AXES = 8


class Layout(NamedTuple):
    """An array as a whole and on one device."""

    whole: tuple[int, ...]
    local: tuple[int, ...]
    """The dimensions on one device, as in the sharding: layouts and padding of tiles aside."""
    sharding: Sharding | None
    """None where no axes of the mesh explain the shapes."""
    value: WholeValue | None = None
    """The same value in the program before partitioning."""

    @property
    def replication(self) -> int | None:
        return None if self.sharding is None else self.sharding.replication

    @property
    def uneven(self) -> float:
        """The share of its elements on all devices that only fill up the last parts."""
        if self.sharding is None:
            return 0.0
        filled = [
            size * self.sharding.split_of(at)
            for at, size in enumerate(self.sharding.shard(self.whole))
        ]
        return 1 - prod(self.whole) / max(prod(filled), 1)


class Layouts:
    """The layouts of a program's values."""

    def __init__(self, memory: MemoryView, whole: WholeProgram | None) -> None:
        self.memory = memory
        self.whole = whole
        self._found: dict[int, Layout | None] = {}
        self._asked: set[int] = set()
        """Values whose operands are being looked at."""

    @cached_property
    def mesh(self) -> Mesh | None:
        if self.whole is not None and self.whole.mesh is not None:
            return self.whole.mesh
        count = self.memory.device_count
        return Mesh((Axis("devices", count),)) if count > 1 else None

    @cached_property
    def parameters(self) -> dict[int, Layout]:
        """Layouts of the arguments, by number."""
        if self.whole is None or self.memory.module is None or self.mesh is None:
            return {}
        found = {}
        for one in self.memory.module.entry.instructions:
            if one.opcode != "parameter" or not one.shape.is_array:
                continue
            before = self.whole.parameters.get(one.parameter_number)
            if before is not None and len(before.shape.dimensions) == len(one.shape.dimensions):
                written = self.whole.sharding_of(before)
                found[one.parameter_number] = self._layout(
                    before.shape.dimensions, one.shape.dimensions, written, before
                )
        return found

    @cached_property
    def results(self) -> tuple[Layout | None, ...]:
        """Layouts of the results, in order."""
        if self.whole is None or self.memory.module is None or self.mesh is None:
            return ()
        root = self.memory.module.entry.root.shape
        shapes = list(root.elements) if root.is_tuple else [root]
        before = self.whole.results
        if len(before) != len(shapes):
            return ()
        return tuple(
            [
                self._layout(whole.dimensions, shape.dimensions, written, producer)
                if shape.is_array and len(shape.dimensions) == len(whole.dimensions)
                else None
                for shape, (whole, producer, written) in zip(shapes, before, strict=True)
            ]
        )

    def _layout(
        self,
        whole: Sequence[int],
        local: Sequence[int],
        written: Sharding | None,
        instruction: HloInstruction,
    ) -> Layout:
        whole, local = tuple(whole), tuple(local)
        value = WholeValue(instruction, instruction.metadata.op_name, ())
        if written is not None and written.shard(whole) == local:
            return Layout(whole, local, written, value)
        return Layout(whole, local, self.explain(whole, local), value)

    def explain(self, whole: Sequence[int], local: Sequence[int]) -> Sharding | None:
        """A sharding that makes the one shape of the other; axes in the order of the mesh."""
        if self.mesh is None or len(whole) != len(local):
            return None
        return _explain(self.mesh, tuple(whole), tuple(local), self.written)

    @cached_property
    def written(self) -> dict[tuple[int, str], int]:
        """How often an axis splits a dimension of some size where shardings are written."""
        counts: dict[tuple[int, str], int] = {}
        if self.whole is None:
            return counts
        known = [(one.value.dimensions, one.sharding) for one in self.whole.constraints]
        known += [
            (tuple(one.shape.dimensions), sharding)
            for one in self.whole.parameters.values()
            if one.shape.is_array and (sharding := self.whole.sharding_of(one)) is not None
        ]
        for dimensions, sharding in known:
            for size, axes in zip(dimensions, sharding.dimensions, strict=False):
                for axis in axes:
                    counts[size, axis.name] = counts.get((size, axis.name), 0) + 1
        return counts

    def of(self, buffer: Buffer) -> Layout | None:
        """The layout of a buffer that is no argument; None where it is not known."""
        if buffer.id not in self._found:
            self._found[buffer.id] = self._find(buffer)
        return self._found[buffer.id]

    def _find(self, buffer: Buffer) -> Layout | None:
        shape = parse_shape_or_none(buffer.shape)
        if self.whole is None or shape is None or not shape.is_array:
            return None
        local = _without_ones(shape.dimensions)
        if not local:
            return None
        for name in self.names_of(buffer):
            found = self._matching(name, local, buffer)
            if found is not None:
                return found
        return self._as_operand(buffer, local)

    def _as_operand(self, buffer: Buffer, local: tuple[int, ...]) -> Layout | None:
        """The layout of an operand of the same shape, where no name tells one."""
        for operand in self.memory.operands(buffer):
            shape = parse_shape_or_none(operand.shape)
            if shape is None or operand.id == buffer.id or operand.id in self._asked:
                continue
            if _without_ones(shape.dimensions) == local and operand.opcode != "parameter":
                self._asked.add(buffer.id)
                found = self.of(operand)
                self._asked.discard(buffer.id)
                if found is not None:
                    return found
        return None

    def names_of(self, buffer: Buffer) -> Iterable[str]:
        """JAX's names of what a buffer holds, the most exact first."""
        names: dict[str, None] = {}
        placed = self.memory.joined.placed_by_id[buffer.id]
        for member in (placed, *self.memory.family(placed)):
            one = self.memory.instruction_by_name.get(member.value.name)
            if one is not None:
                names.update(dict.fromkeys(_names_in(one, member.index)))
        if buffer.op_name:
            names[buffer.op_name] = None
        return [name for name in names if name]

    def _matching(self, name: str, local: tuple[int, ...], buffer: Buffer) -> Layout | None:
        assert self.whole is not None
        layouts: dict[tuple[int, ...], list[Layout]] = {}
        for value in self.whole.by_name.get(name, ()):
            dimensions = _without_ones(value.dimensions)
            sharding = self.explain(dimensions, local)
            if sharding is not None:
                made = Layout(dimensions, local, sharding, value)
                layouts.setdefault(dimensions, []).append(made)
        if not layouts:
            return None
        at_line = [
            made
            for group in layouts.values()
            for made in group
            if made.value is not None and self.whole.line(made.value) == buffer.source
        ]
        several = at_line or [made for group in layouts.values() for made in group]
        # The least split one explains most shapes by chance, the most split one fewest.
        return max(several, key=lambda made: prod(made.whole))


def _names_in(one: HloInstruction, index: Sequence[int]) -> Iterable[str]:
    """The operation of an instruction, or of what a fusion ends with."""
    if one.opcode == "fusion":
        root = one.called_computations[0].root
        if root.opcode == "tuple" and index:
            root = root.operands[index[0]]
        for _ in range(8):
            if root.metadata.op_name or root.opcode not in SAME_DATA:
                break
            root = root.operands[0]
        yield root.metadata.op_name
    if one.opcode not in ("while", "tuple", "get-tuple-element", "parameter"):
        yield one.metadata.op_name


def _without_ones(dimensions: Sequence[int]) -> tuple[int, ...]:
    return tuple([size for size in dimensions if size != 1])


def _explain(
    mesh: Mesh,
    whole: tuple[int, ...],
    local: tuple[int, ...],
    written: Mapping[tuple[int, str], int],
) -> Sharding | None:
    left = [axis for axis in mesh.axes if axis.size > 1][:_MAX_AXES]
    rows: list[tuple[Axis, ...]] = []
    for total, part in zip(whole, local, strict=True):
        likely = sorted(left, key=lambda axis: -written.get((total, axis.name), 0))
        axes = _axes_for(likely, total, part)
        if axes is None:
            return None
        left = [axis for axis in left if axis not in axes]
        rows.append(axes)
    return Sharding(mesh, tuple(rows))


def _axes_for(left: Sequence[Axis], total: int, part: int) -> tuple[Axis, ...] | None:
    """The fewest axes that split a dimension into such parts; none if all parts are joined."""
    if part > total:
        counts = range(1, len(left) + 1)
        some = [axes for count in counts for axes in combinations(left, count)]
        sizes = [prod([axis.size for axis in axes]) for axes in some]
        return () if any(-(-total // size) * size == part for size in sizes) else None
    for count in range(len(left) + 1):
        for axes in combinations(left, count):
            if -(-total // prod([axis.size for axis in axes])) == part:
                return axes
    return None
