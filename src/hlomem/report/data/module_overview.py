"""An HLO module in one screen: size, inputs, outputs, donations. Bytes include layout padding."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.hlo.padding import UnknownSizeError, padded_size, unpadded_size

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.shape import Shape, ShapeIndex


class EntryArray(Record, frozen=True, kw_only=True):
    name: str
    """The user's name for it, if the module has one."""
    index: tuple[int, ...]
    """The parameter number (inputs only), then the tuple index."""
    shape: str
    size: int | None
    """None if the shape is unbounded."""
    alias: tuple[int, ...] | None = None
    """The output that reuses a donated parameter, and vice versa."""
    is_donor: bool = False
    """Whether any output may overwrite it."""


class SpaceUse(Record, frozen=True, kw_only=True):
    """The number of arrays defined in a memory space, outside fusions."""

    color: int
    count: int


class ModuleOverview(Record, frozen=True, kw_only=True):
    name: str
    is_scheduled: bool
    computation_count: int
    fused_count: int
    instruction_count: int
    replica_count: int
    num_partitions: int
    opcodes: tuple[tuple[str, int], ...]
    """Every opcode with its count, most frequent first."""
    parameters: tuple[EntryArray, ...]
    outputs: tuple[EntryArray, ...]
    spaces: tuple[SpaceUse, ...]


def build_module_overview(module: HloModule) -> ModuleOverview:
    """The overview of a module; fused bodies are counted, not read."""
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


def _parameters(module: HloModule) -> tuple[EntryArray, ...]:
    output_of = {
        (a.parameter_number, a.parameter_index): a.output_index for a in module.input_output_alias
    }
    donors = {(donor.parameter_number, donor.parameter_index) for donor in module.buffer_donor}
    return tuple(
        EntryArray(
            name=parameter.metadata.op_name or parameter.name,
            index=(number, *index),
            shape=shape.text,
            size=_size(shape),
            alias=output_of.get((number, index)),
            is_donor=(number, index) in donors,
        )
        for number, parameter in enumerate(module.entry.parameters)
        for index, shape in parameter.shape.leaves()
    )


def _outputs(module: HloModule) -> tuple[EntryArray, ...]:
    root = module.entry.root
    parameter_of = {
        a.output_index: (a.parameter_number, *a.parameter_index) for a in module.input_output_alias
    }
    return tuple(
        EntryArray(
            name=_output_name(root, index),
            index=index,
            shape=shape.text,
            size=_size(shape),
            alias=parameter_of.get(index),
        )
        for index, shape in root.shape.leaves()
    )


def _output_name(root: HloInstruction, index: ShapeIndex) -> str:
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
        leaf.memory_space
        for computation in module.outer_computations
        for instruction in computation.instructions
        if instruction.opcode != "tuple" and instruction.opcode != "get-tuple-element"
        for _, leaf in instruction.shape.leaves()
        if leaf.is_array
    )
    return tuple([SpaceUse(color=color, count=count) for color, count in sorted(arrays.items())])
