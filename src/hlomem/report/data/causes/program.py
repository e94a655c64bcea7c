"""One of two compared programs, read from its module, or else from the dump's instructions."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data.causes.operations import Array, Operation, OperationReader, array_of
from hlomem.report.data.donation import declared_donations
from hlomem.report.data.lines import Frame, Lines
from hlomem.report.data.matching import operation_key
from hlomem.report.data.phases import REMATTED
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.report.data.memory import Buffer, MemoryView

_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute"
    r"|collective-broadcast)(?:-start)?$"
)
_WRAPPER = re.compile(r"(?:jvp|transpose|vmap|jit|pjit|remat|checkpoint)\((.*)\)$")
_HEAD = re.compile(r"[^\[.]+")
_TRIP_COUNT = re.compile(r'known_trip_count"?:\{"?n"?:"?(\d+)')
_MAX_DIGITS = 12
_NO_SCOPES = frozenset(
    {"", "while", "body", "cond", "checkpoint", "remat", "remat2", "closed_call", "eval_jaxpr"}
)
"""Scopes that JAX adds around a loop."""
FLOATS = frozenset({"f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"})
_HOST = 5
"""The memory space of the host on every backend (XLA: `Layout::kHostMemorySpace`)."""


class ProgramArgument(NamedTuple):
    """An argument of the program, as one device holds it."""

    name: str
    number: int
    array: Array
    size: int
    is_donated: bool
    is_carried: bool
    """Whether a loop carries or slices it."""
    role: str

    @property
    def tree(self) -> str:
        """The argument of the user's function this is a leaf of: `params`."""
        found = _HEAD.match(self.name)
        return found[0] if found else self.name


class Loop(NamedTuple):
    path: str
    """The scopes around it, without those of other loops."""
    line: str | None
    depth: int
    """How many loops it runs in."""


def array_of_buffer(buffer: Buffer) -> Array | None:
    return array_of(parse_shape_or_none(buffer.shape))


@lru_cache(maxsize=1 << 15)
def scopes(name: str) -> tuple[str, ...]:
    """The scopes of an operation's name, unwrapped from JAX's transformations."""
    return tuple(map(_unwrapped, name.split("/")) if ")" in name else name.split("/"))


def _unwrapped(scope: str) -> str:
    while (wrapped := _WRAPPER.match(scope)) is not None:
        scope = wrapped[1]
    return scope


def _compared(loop: HloInstruction) -> list[str]:
    """The constants that the root of a loop's condition reads."""
    root = loop.called_computations[1].root if len(loop.called_computations) > 1 else None
    operands = root.operands if root is not None and root.opcode == "compare" else ()
    found = [one.payload for one in operands if one.opcode == "constant"]
    return [payload for payload in found if payload.isdecimal() and len(payload) < _MAX_DIGITS]


def _loop(parts: tuple[str, ...], line: str | None) -> Loop:
    path = "/".join(part for part in parts if part not in _NO_SCOPES)
    return Loop(path, line, parts.count("while") - 1)


class ComparedProgram:
    """One side's program; everything is computed on demand."""

    def __init__(self, memory: MemoryView, reader: OperationReader) -> None:
        self.memory = memory
        self._reader = reader
        self._lines = Lines(memory.module)

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        module = self.memory.module
        found = self._reader.operations(module) if module else self._dump_operations()
        return tuple(found)

    def _dump_operations(self) -> Iterator[Operation]:
        for text in self.memory.joined.printed.values():
            if (name := text.metadata.op_name) and text.opcode != "parameter":
                array = array_of(parse_shape_or_none(text.shape_text))
                yield Operation(operation_key(name), text.opcode, array, False, text.tail)

    @cached_property
    def operation_names(self) -> frozenset[str]:
        return frozenset(operation.name for operation in self.operations)

    def has_operation(self, op_name: str) -> bool:
        # Most are outside fusions, which are cheap to look up.
        name = operation_key(op_name)
        return name in self._outer_names or name in self.operation_names

    @cached_property
    def _outer_names(self) -> frozenset[str]:
        return frozenset(
            operation_key(text.find_op_name())
            for text in self.memory.joined.printed.values()
            if text.opcode != "parameter"
        ) - {""}

    @cached_property
    def float_arrays(self) -> frozenset[tuple[str, Array]]:
        return frozenset(
            (operation.name, operation.array)
            for operation in self.operations
            if operation.array is not None and operation.array.dtype in FLOATS
        )

    @cached_property
    def dimensions(self) -> frozenset[tuple[int, ...]]:
        """Those of all arrays that are computed."""
        return frozenset(op.array.dimensions for op in self.operations if op.array)

    @cached_property
    def rematted(self) -> frozenset[str]:
        """The operations recomputed in the backward pass, by the scopes after REMATTED."""
        return frozenset(
            name.partition(f"{REMATTED}/")[2] for name in self.operation_names if REMATTED in name
        )

    def frames(self, operation: Operation) -> tuple[Frame, ...]:
        return self._lines.origin(operation.text).frames

    def line(self, operation: Operation) -> str | None:
        return self._lines.origin(operation.text).line

    @cached_property
    def arguments(self) -> dict[str, ProgramArgument]:
        return {argument.name: argument for argument in self._find_arguments()}

    def _find_arguments(self) -> Iterator[ProgramArgument]:
        module = self.memory.module
        declared = None if module is None else declared_donations(module)
        for allocation in self.memory.joined.allocations:
            parameter = allocation.parameter
            if parameter is None:
                continue
            for buffer in self.memory.buffers_in(allocation.index):
                array = array_of_buffer(buffer)
                if buffer.opcode != "parameter" or array is None:
                    continue
                is_donated = allocation.maybe_live_out
                if declared is not None:
                    is_donated = (parameter.number, tuple(parameter.index)) in declared
                name = buffer.parameter or f"parameter {parameter.number}"
                is_carried = self.memory.is_carried(buffer)
                sizes = parameter.number, array, allocation.size
                yield ProgramArgument(name, *sizes, is_donated, is_carried, buffer.role)
                break

    @cached_property
    def results(self) -> tuple[Shape, ...]:
        module = self.memory.module
        layout = module.entry_computation_layout if module else None
        return tuple(shape for _, shape in layout.result.leaves()) if layout else ()

    @cached_property
    def entry_parameters(self) -> tuple[Shape, ...]:
        module = self.memory.module
        layout = module.entry_computation_layout if module else None
        return tuple(layout.parameters) if layout else ()

    @cached_property
    def fused_arrays(self) -> frozenset[tuple[str, Array | None]]:
        return frozenset(
            (operation.name, operation.array) for operation in self.operations if operation.is_fused
        )

    @cached_property
    def collectives(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for text in self.memory.joined.printed.values():
            if (kind := _COLLECTIVE.match(text.opcode)) is not None:
                found[kind[1]] = found.get(kind[1], 0) + 1
        return found

    @cached_property
    def loops(self) -> frozenset[Loop]:
        """The loops of user code, except recomputed ones; backward passes repeat their lines.

        A loop that lost its name is known by those of the operations in it, without a line.
        """
        found, inner = set(), set()
        for operation in self.operations:
            parts = scopes(operation.name)
            if "while" not in parts or REMATTED in parts:
                continue
            if operation.opcode == "while" and parts[-1] == "while":
                found.add(_loop(parts, self.line(operation)))
            elif "while" in parts[:-1]:
                inner.add(_loop(parts[: parts.index("while") + 1], None))
        known = {loop.path for loop in found}
        return frozenset(found) | {loop for loop in inner if loop.path not in known}

    @cached_property
    def has_unnamed_loops(self) -> bool:
        """Whether a loop has no name, such as those that compilers make or rewrite."""
        texts = self.memory.joined.printed.values()
        return any(text.opcode == "while" and not text.find_op_name() for text in texts)

    @cached_property
    def trip_counts(self) -> Counter[int]:
        """How many loops run so often: as XLA notes it, else as conditions compare."""
        module = self.memory.module
        loops = [
            instruction
            for instruction in (module.iter_outer_instructions() if module else ())
            if instruction.opcode == "while"
        ]
        noted = [_TRIP_COUNT.findall(loop.attribute_text) or _compared(loop) for loop in loops]
        return Counter(int(count) for counts in noted for count in counts)

    @cached_property
    def host_buffers(self) -> tuple[Buffer, ...]:
        """The largest buffer at each offset of host memory."""
        largest: dict[tuple[int, int], Buffer] = {}
        for buffer in self.memory.buffers:
            if buffer.color == _HOST and not buffer.shape.startswith("("):
                key = (buffer.allocation, buffer.offset)
                if key not in largest or buffer.size > largest[key].size:
                    largest[key] = buffer
        return tuple(largest.values())

    @cached_property
    def result_allocations(self) -> frozenset[int]:
        return frozenset(
            allocation.index
            for allocation in self.memory.joined.allocations
            if allocation.maybe_live_out and allocation.parameter is None
        )
