"""The program before it was partitioned: whole shapes, and the shardings its author asked for.

In: the module that XLA writes as `before_optimizations`. Out: its arguments and results with their
shardings, its constraints, and its values by JAX's name of their operation, as the names are once
XLA has inlined calls.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.sharding import (
    Mesh,
    Sharding,
    mesh_of_devices,
    parse_meshes,
    parse_sharding,
    split_tuple,
)
from hlomem.report.data.lines import Lines, is_installed, users_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.stack_frames import StackFrame

_MAX_VALUES = 200_000
"""Values of all calls that are listed."""
_SHARDY = "xla.sdy.sharding"
_CONSTRAINT = "Sharding"
_MANUAL = "manual_computation_body"
_SHARD_MAP = "shmap_body"
SAME_VALUE = frozenset({"reshape", "copy", "bitcast", "convert", "broadcast", "transpose"})
_PARTS = SAME_VALUE | {"dynamic-slice", "slice", "reduce-precision"}
_MOVED = frozenset({"reshape", "bitcast"})
_RESIZING = frozenset({"slice", "dynamic-slice", "concatenate", "pad"})
"""Operations that make a dimension longer or shorter."""
_MAX_HOPS = 32


class WholeValue(NamedTuple):
    """An instruction of the program before partitioning, in one of its calls."""

    instruction: HloInstruction
    op_name: str
    """With the names of the calls around it."""
    calls: tuple[HloInstruction, ...]
    """The calls around it, outermost first."""

    @property
    def dimensions(self) -> tuple[int, ...]:
        return tuple(self.instruction.shape.dimensions)

    @property
    def size(self) -> int:
        """Bytes of the whole array."""
        return prod(self.dimensions) * self.instruction.shape.element_type.byte_width


class Constraint(NamedTuple):
    """A `with_sharding_constraint` of the user, or one that JAX writes for him."""

    value: WholeValue
    sharding: Sharding


class WholeProgram:
    """The module before partitioning."""

    def __init__(
        self,
        module: HloModule,
        is_asked_by_caller: Callable[[str, int], bool] | None = None,
    ) -> None:
        """`is_asked_by_caller` tells lines that ask for a sharding that their callers give."""
        self.module = module
        self._is_asked_by_caller = is_asked_by_caller
        self._lines = Lines(module)

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh that most shardings are over; without names where only devices are listed."""
        counts: dict[Mesh, int] = {}
        by_devices: dict[str, None] = {}
        for instruction in self.module.iter_instructions():
            for text in self._texts(instruction):
                if "devices=[" in text and "mesh[" not in text:
                    by_devices[text] = None
                elif (sharding := parse_sharding(text, 0, None, self._meshes)) is not None:
                    counts[sharding.mesh] = counts.get(sharding.mesh, 0) + 1
        named = next(iter(self._meshes.values()), None) or mesh_of_devices(by_devices)
        return max(counts, key=counts.__getitem__, default=named)

    @cached_property
    def _meshes(self) -> dict[str, Mesh]:
        return parse_meshes(self.module.attributes.get("frontend_attributes", ""))

    def _texts(self, instruction: HloInstruction) -> list[str]:
        if instruction.may_have("sharding"):
            if text := instruction.attributes.get("sharding"):
                return split_tuple(text)
            if text := instruction.attributes.get("frontend_attributes", ""):
                return [text[text.find(_SHARDY) :]] if _SHARDY in text else []
        return []

    def sharding_of(self, instruction: HloInstruction, part: int = 0) -> Sharding | None:
        """The sharding that is written at an instruction, or at a part of its tuple."""
        texts = self._texts(instruction)
        if part >= len(texts):
            return None
        shape = instruction.shape
        rank = len((shape.elements[part] if shape.is_tuple else shape).dimensions)
        return parse_sharding(texts[part], rank, self.mesh, self._meshes)

    @cached_property
    def parameters(self) -> dict[int, HloInstruction]:
        found = [one for one in self.module.entry.instructions if one.opcode == "parameter"]
        return {one.parameter_number: one for one in found}

    @cached_property
    def results(self) -> tuple[tuple[Shape, HloInstruction, Sharding | None], ...]:
        """Whole shape, producer and written sharding of each result."""
        root = self.module.entry.root
        parts = [root] if not root.shape.is_tuple else list(root.operands)
        if root.shape.is_tuple and root.opcode != "tuple":
            return ()
        found = []
        for number, part in enumerate(parts):
            written = self.sharding_of(root, number if root.shape.is_tuple else 0)
            producer = _unwrapped(part)
            own = self.sharding_of(part) or self.sharding_of(producer)
            found.append((part.shape, producer, written or own))
        return tuple(found)

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(self._constraints())

    def _constraints(self) -> Iterator[Constraint]:
        for value in self.values:
            one = value.instruction
            if is_constraint(one):
                sharding = self.sharding_of(one)
                if sharding is not None and one.shape.is_array:
                    yield Constraint(value, sharding)

    @cached_property
    def values(self) -> tuple[WholeValue, ...]:
        """Every value in every call, in the order of the program."""
        found: list[WholeValue] = []
        pending: list[tuple[HloComputation, str, tuple[HloInstruction, ...]]] = [
            (self.module.entry, "", ())
        ]
        seen: set[HloComputation] = set()
        while pending and len(found) < _MAX_VALUES:
            computation, prefix, calls = pending.pop()
            for one in computation.instructions:
                name = one.metadata.op_name if one.may_have("metadata") else ""
                full = f"{prefix}/{name}" if prefix and name else name or prefix
                found.append(WholeValue(one, full, calls))
                for callee in one.called_computations:
                    is_call = one.opcode == "call"
                    if is_call or callee not in seen:
                        seen.add(callee)
                        pending.append((callee, full if is_call else prefix, (*calls, one)))
        return tuple(found)

    @cached_property
    def by_name(self) -> dict[str, list[WholeValue]]:
        found: dict[str, list[WholeValue]] = {}
        for value in self.values:
            is_array = value.instruction.shape.is_array
            if value.op_name and is_array and not self._is_local(value):
                found.setdefault(value.op_name, []).append(value)
        return found

    def _is_local(self, value: WholeValue) -> bool:
        """Whether a value is computed in a `shard_map`, where shapes are those of one device."""
        if _SHARD_MAP in value.op_name:
            return True
        return any(
            _MANUAL in callee.name for call in value.calls for callee in call.called_computations
        )

    def frame(self, value: WholeValue) -> StackFrame | None:
        """The expression of the user's code that computes a value: lines and columns.

        A constraint that a function puts on what it is given is the call of that function.
        """
        for one in (value.instruction, *reversed(value.calls)):
            origin = self._lines.origin_in(one)
            users = users_frame(origin.frames)
            if users is None:
                continue
            frames = one.stack_frames
            at = [(frame.file_name, frame.line) for frame in frames].index((users.file, users.line))
            is_helped = is_constraint(one) and (users.file, users.line) in self._helpers
            return frames[at + 1] if is_helped and at + 1 < len(frames) else frames[at]
        return None

    def calls_of(self, value: WholeValue) -> list[StackFrame]:
        """The calls that lead to a value, of functions that have several, innermost first."""
        frames = [one for one in value.instruction.stack_frames if not is_installed(one.file_name)]
        return [call for one, call in pairwise(frames) if len(self._callers[_place(one)]) > 1]

    @cached_property
    def _callers(self) -> dict[tuple[str, int], set[tuple[str, int]]]:
        """The lines that call the function of a line."""
        by_id = {one.metadata.stack_frame_id: one for one in self.module.iter_instructions()}
        found: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        for one in by_id.values():
            own = [frame for frame in one.stack_frames if not is_installed(frame.file_name)]
            for here, caller in pairwise(own):
                found[_place(here)].add(_place(caller))
        return found

    @cached_property
    def _helpers(self) -> set[tuple[str, int]]:
        """Lines that ask for what a caller asks for; without the source, those of several."""
        callers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for constraint in self.constraints:
            frames = constraint.value.instruction.stack_frames
            own = [frame for frame in frames if not is_installed(frame.file_name)]
            for here, caller in pairwise(own[:2]):
                place = here.file_name, here.line
                callers.setdefault(place, set()).add((caller.file_name, caller.line))
        return {
            place
            for place, found in callers.items()
            if (self._is_asked_by_caller(*place) if self._is_asked_by_caller else len(found) > 1)
        }

    def line(self, value: WholeValue) -> str | None:
        """`file:line` of the user's code."""
        frame = self.frame(value)
        if frame is not None:
            return f"{frame.file_name}:{frame.line}"
        origins = [self._lines.origin_in(one) for one in (value.instruction, *value.calls[::-1])]
        return next((origin.line for origin in origins if origin.line), None)

    def line_of_size(self, size: int, even: int) -> str | None:
        """The line that makes a dimension of this size of one that is divided evenly.

        None where it is the size of an argument, or made of nothing.
        """
        for value in self.values:
            one = value.instruction
            if size not in _dimensions(one):
                continue
            sizes = {its for operand in one.operands for its in _dimensions(operand)}
            is_cut = one.opcode in _RESIZING and any(its % even == 0 for its in sizes)
            return self.line(value) if is_cut and size not in sizes else None
        return None

    def line_of_loop(self, value: WholeValue) -> str | None:
        """The line of the innermost loop around a value; its own where there is none."""
        loops = [call for call in value.calls if call.opcode == "while"]
        loop = users_frame(self._lines.origin_in(loops[-1]).frames) if loops else None
        return self.line(value) if loop is None else f"{loop.file}:{loop.line}"

    def stored_by(self, update: WholeValue) -> WholeValue:
        """The value that a `dynamic-update-slice` writes, as the user computed it."""
        return self.computed(WholeValue(update.instruction.operands[1], "", update.calls))

    def computed(self, value: WholeValue) -> WholeValue:
        """The instruction that computes a value, before calls and changes of form hand it on."""
        one, calls = value.instruction, value.calls
        for _ in range(_MAX_HOPS):
            if one.opcode == "parameter" and calls and calls[-1].opcode == "call":
                one, calls = calls[-1].operands[one.parameter_number], calls[:-1]
            elif one.opcode in _MOVED or (one.opcode in SAME_VALUE and not self._has_line(one)):
                one = one.operands[0]
            else:
                break
        return WholeValue(one, one.metadata.op_name, calls)

    def argument_of(self, value: WholeValue) -> int | None:
        """The number of the argument that a value is a part of, in another form at most."""
        one, calls = value.instruction, value.calls
        for _ in range(_MAX_HOPS):
            if one.opcode == "parameter":
                if not calls:
                    return one.parameter_number
                if calls[-1].opcode != "call":
                    return None
                one, calls = calls[-1].operands[one.parameter_number], calls[:-1]
            elif one.opcode == "get-tuple-element":
                found = carried(one, calls)
                if found is None:
                    return None
                one, calls = found
            elif one.opcode == "call":
                one, calls = one.called_computations[0].root, (*calls, one)
            elif one.opcode in _PARTS or is_constraint(one):
                one = one.operands[0]
            else:
                return None
        return None

    def _has_line(self, one: HloInstruction) -> bool:
        return bool(self._lines.origin_in(one).line)


def _dimensions(one: HloInstruction) -> tuple[int, ...]:
    return tuple(one.shape.dimensions) if one.shape.is_array else ()


def _place(frame: StackFrame) -> tuple[str, int]:
    return frame.file_name, frame.line


def is_constraint(one: HloInstruction) -> bool:
    """Whether an instruction only says how its operand is sharded."""
    return one.opcode == "custom-call" and one.custom_call_target == _CONSTRAINT


def carried(
    one: HloInstruction, calls: tuple[HloInstruction, ...]
) -> tuple[HloInstruction, tuple[HloInstruction, ...]] | None:
    """The value that a part of a tuple is, in a call; at a loop's start for what it carries."""
    holder, index = one.operands[0], one.tuple_index
    if holder.opcode == "tuple":
        return holder.operands[index], calls
    if holder.opcode == "call" and (root := holder.called_computations[0].root).opcode == "tuple":
        return root.operands[index], (*calls, holder)
    if holder.opcode != "parameter" or not calls or calls[-1].opcode != "while":
        return None
    start = calls[-1].operands[0]
    return (start.operands[index], calls[:-1]) if start.opcode == "tuple" else None


def _unwrapped(instruction: HloInstruction) -> HloInstruction:
    """The producer of a result, without the tuples that JAX adds."""
    one = instruction
    for _ in range(_MAX_HOPS):
        if one.opcode != "get-tuple-element" or one.operands[0].opcode != "tuple":
            break
        one = one.operands[0].operands[one.tuple_index]
    return one
