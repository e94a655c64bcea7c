"""An HLO module in one screen: its size, what goes in and out, what is donated.

In goes a module, out comes plain data; `module_overview_text` draws it. Bytes are those of the
arrays with the padding their layouts ask for, which is what they take on every backend.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.hlo.padding import UnknownSizeError, padded_size, unpadded_size

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.shape import Shape, ShapeIndex


class Argument(Record, frozen=True, kw_only=True):
    """An array that goes into or comes out of the program."""

    name: str
    """The user's name for it, where the module has one."""
    index: tuple[int, ...]
    """Parameter number (or nothing, for an output), then the way into its tuple."""
    shape: str
    size: int | None
    """Bytes; None where the shape is unbounded."""
    alias: tuple[int, ...] | None = None
    """Of a donated parameter the output that takes its place, and the other way round."""
    is_donor: bool = False
    """May be overwritten, by no output in particular."""


class SpaceUse(Record, frozen=True, kw_only=True):
    """How many arrays the instructions outside fusions define in a memory space."""

    color: int
    count: int


class ModuleOverview(Record, frozen=True, kw_only=True):
    """A module in one screen."""

    name: str
    is_scheduled: bool
    computation_count: int
    fused_count: int
    instruction_count: int
    replica_count: int
    num_partitions: int
    opcodes: tuple[tuple[str, int], ...]
    """Every opcode with its count, the most frequent first."""
    parameters: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    spaces: tuple[SpaceUse, ...]


def build_module_overview(module: HloModule) -> ModuleOverview:
    """One screen's worth of a module; fused bodies are counted, not read."""
    opcodes = Counter(
        [opcode for computation in module.computations for _, opcode in computation.outline()]
    )
    return ModuleOverview(
        name=module.name,
        is_scheduled=module.is_scheduled,
        computation_count=len(module.computations),
        fused_count=len(module.fused_computations),
        instruction_count=opcodes.total(),
        replica_count=module.replica_count,
        num_partitions=module.num_partitions,
        opcodes=tuple(sorted(opcodes.items(), key=lambda row: (-row[1], row[0]))),
        parameters=_parameters(module),
        outputs=_outputs(module),
        spaces=_spaces(module),
    )


def _parameters(module: HloModule) -> tuple[Argument, ...]:
    output_of = {
        (a.parameter_number, a.parameter_index): a.output_index for a in module.input_output_alias
    }
    donors = {(donor.parameter_number, donor.parameter_index) for donor in module.buffer_donor}
    return tuple(
        [
            Argument(
                name=_user_name(parameter),
                index=(number, *index),
                shape=shape.text,
                size=_size(shape),
                alias=output_of.get((number, index)),
                is_donor=(number, index) in donors,
            )
            for number, parameter in enumerate(module.entry.parameters)
            for index, shape in parameter.shape.leaves()
        ]
    )


def _outputs(module: HloModule) -> tuple[Argument, ...]:
    root = module.entry.root
    parameter_of = {
        a.output_index: (a.parameter_number, *a.parameter_index) for a in module.input_output_alias
    }
    return tuple(
        [
            Argument(
                name=_output_name(root, index),
                index=index,
                shape=shape.text,
                size=_size(shape),
                alias=parameter_of.get(index),
            )
            for index, shape in root.shape.leaves()
        ]
    )


def _user_name(instruction: HloInstruction) -> str:
    return instruction.metadata.op_name or instruction.name


def _output_name(root: HloInstruction, index: ShapeIndex) -> str:
    """The instruction an output comes from, through the tuple that returns it."""
    if index and root.opcode == "tuple":
        root = root.operands[index[0]]
    return root.name


def _size(shape: Shape) -> int | None:
    if not shape.is_array:
        return 0
    try:
        is_tiled = shape.layout is not None and shape.layout.tiles
        return padded_size(shape) if is_tiled else unpadded_size(shape)
    except UnknownSizeError:
        return None


def _spaces(module: HloModule) -> tuple[SpaceUse, ...]:
    arrays = Counter(
        [
            leaf.memory_space
            for computation in module.outer_computations
            for instruction in computation.instructions
            if instruction.opcode != "tuple" and instruction.opcode != "get-tuple-element"
            for _, leaf in instruction.shape.leaves()
            if leaf.is_array
        ]
    )
    return tuple([SpaceUse(color=color, count=count) for color, count in sorted(arrays.items())])
