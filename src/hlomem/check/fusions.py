"""Fusions that overwrite an operand, checked by their bodies.

A fusion computes element by element. If it overwrites an operand, it must read that operand only at
the offset it is about to write:

    p ──── negate ──── add        right: element i of p, then element i of the result
    p ─┬─ slice [0:3] ─┐
       └───────────── dynamic-update-slice at 1       wrong: element 0 is read for element 1,
                                                      after element 0 of p may be overwritten

An update may read the window it writes, and anything if it writes a single element. The wrong one
is openxla/xla issue 49176.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.base.native import kernel
from hlomem.base.patterns import lazy_pattern
from hlomem.check.opcodes import KEEPS_NUMBER, SAME_BYTES, SAME_PLACE, SLICES
from hlomem.view.families import UPDATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.records import ShapeIndex
    from hlomem.hlo.ir import HloInstruction

_MAX_NESTED = 20
_MAX_COPIED = 20
"""Limits on nested fusions, and on instructions between two copies."""


class Window(NamedTuple):
    """A window read of the shared operand: its starts, in dimensions larger than 1."""

    starts: tuple[object, ...]


class StrayRead(NamedTuple):
    instruction: str
    opcode: str
    detail: str = ""


Form: TypeAlias = str
"""The text of a body with instructions numbered in the order of first mention."""

_blur_natively: Callable[[str], Form] | None = kernel("hlomem.check._form", "blur")
SAME = Window(())
_NAME = lazy_pattern(r"(%[\w.\-]++)")
_ORIGIN = lazy_pattern(r", metadata=\{[^{}\n]*+\}")
Read: TypeAlias = "Window | StrayRead"
"""How a result depends on the shared operand."""


def find_stray_read(
    fusion: HloInstruction, operand: int, output: ShapeIndex, depth: int = 0
) -> StrayRead | None:
    """An instruction inside `fusion` that reads an operand at other offsets than are written."""
    body = fusion.called_computations[0]
    if operand >= len(body.parameters):
        return None
    shared = body.parameters[operand]
    reads: dict[HloInstruction, set[Read]] = {}
    for instruction in body.instructions:
        own = instruction is shared
        reads[instruction] = {SAME} if own else _reads(instruction, reads, depth)
    root = body.root
    for number in output:
        if root.opcode != "tuple":
            return None
        root = root.operands[number]
    if depth == 0 and _writes_one_element(root, shared):
        return None
    for read in sorted(reads[root], key=str):
        if isinstance(read, StrayRead):
            return read
        if read != SAME:
            return StrayRead(root.name, root.opcode)
    return None


def form_of(fusion: HloInstruction) -> Form | None:
    """The form of a fusion's body without metadata; None without text, or with nested fusions."""
    text = fusion.called_computations[0].body_text
    if text is None or " fusion(" in text:
        return None
    return blur(text) if _blur_natively is None or not text.isascii() else _blur_natively(text)


def blur(text: str) -> Form:
    """A text with numbers for names, and without metadata."""
    parts = _NAME.split(_ORIGIN.sub("", text))
    number_of = {name: f"%{number}" for number, name in enumerate(dict.fromkeys(parts[1::2]))}
    parts[1::2] = [number_of[name] for name in parts[1::2]]
    return "".join(parts)


def _writes_one_element(root: HloInstruction, shared: HloInstruction) -> bool:
    """Whether one element is written, after all reads (`EmitFusedDynamicUpdateSliceInPlace`)."""
    if root.opcode != "dynamic-update-slice" or root.operands[0] is not shared:
        return False
    return all(size == 1 for size in root.operands[1].shape.dimensions)


def updated_operands(fusion: HloInstruction) -> list[tuple[ShapeIndex, int]]:
    """The outputs that are an operand with a part of it replaced, each with that operand."""
    text = fusion.called_computations[0].body_text
    if text is not None and not any(map(text.__contains__, UPDATES)):
        return []
    root = fusion.called_computations[0].root
    outputs: list[tuple[ShapeIndex, HloInstruction]] = [((), root)]
    if root.opcode == "tuple":
        outputs = [((number,), output) for number, output in enumerate(root.operands)]
    return [
        (index, output.operands[0].parameter_number)
        for index, output in outputs
        if output.opcode in UPDATES
        and not output.shape.is_tuple
        and output.operands[0].opcode == "parameter"
    ]


def _reads(
    instruction: HloInstruction, reads: dict[HloInstruction, set[Read]], depth: int
) -> set[Read]:
    """How an instruction inside a fusion depends on the shared operand."""
    operands = [reads[operand] for operand in instruction.operands]
    everything: set[Read] = set().union(*operands)
    if not everything:
        return everything
    opcode = instruction.opcode
    if opcode == "get-tuple-element" and instruction.operands[0].opcode == "tuple":
        return reads[instruction.operands[0].operands[instruction.tuple_index]]
    strays = {read for read in everything if isinstance(read, StrayRead)}
    if strays:
        source = _moved_back(instruction, reads) if opcode == "copy" else None
        return set(strays) if source is None else reads[source]
    if opcode in SAME_BYTES or opcode == "get-tuple-element" or _keeps_offsets(instruction, reads):
        return everything
    if opcode == "fusion":
        return everything | _reads_of_fusion(instruction, operands, depth)
    if opcode in SLICES and not set().union(*operands[1:]):
        return {Window(_starts(instruction, 1))} if everything == {SAME} else {_stray(instruction)}
    if opcode == "dynamic-update-slice" and not set().union(*operands[2:]):
        return _reads_of_update(instruction, operands[0], operands[1])
    if opcode == "scatter" and not set().union(*operands[1:]):
        return everything
    return {_stray(instruction)}


def _moved_back(
    instruction: HloInstruction, reads: dict[HloInstruction, set[Read]]
) -> HloInstruction | None:
    """The instruction whose layout a copy restores: a fusion stores no intermediate results."""
    source = instruction
    for _ in range(_MAX_COPIED):
        matter = [operand for operand in source.operands if reads[operand]]
        if source.opcode not in SAME_PLACE or len(matter) != 1:
            return None
        source = matter[0]
        is_astray = any(isinstance(read, StrayRead) for read in reads[source])
        if not is_astray and _order(source) == _order(instruction):
            return source
    return None


def _reads_of_fusion(fusion: HloInstruction, operands: list[set[Read]], depth: int) -> set[Read]:
    if depth == _MAX_NESTED or fusion.shape.is_tuple:
        return {_stray(fusion)}
    numbers = [number for number, read in enumerate(operands) if read]
    strays = [find_stray_read(fusion, number, (), depth + 1) for number in numbers]
    return {stray for stray in strays if stray is not None}


def _reads_of_update(update: HloInstruction, base: set[Read], new: set[Read]) -> set[Read]:
    """Only the window that is written may be read of the shared operand."""
    window = Window(_starts(update, 2))
    if not new - {window}:
        return base | {SAME}
    if new == {SAME} and update.operands[1].shape.dimensions == update.shape.dimensions:
        return base | new
    windows = {read for read in new - {window} if isinstance(read, Window)}
    read = " and ".join(sorted(map(_describe, windows)))
    detail = f": elements from {read} on go to {_describe(window)}"
    return {StrayRead(update.name, update.opcode, detail)}


def _describe(window: Window) -> str:
    """A window as `[0, i]`."""
    return "[" + ", ".join(str(getattr(start, "name", start)) for start in window.starts) + "]"


def _stray(instruction: HloInstruction) -> StrayRead:
    return StrayRead(instruction.name, instruction.opcode)


def _keeps_offsets(instruction: HloInstruction, reads: dict[HloInstruction, set[Read]]) -> bool:
    """Whether every element keeps its offset, from each operand that matters.

    Elementwise instructions do if layouts agree; a transpose, broadcast, reduction, slice or pad if
    it only renames dimensions, or adds or drops dimensions of size 1.
    """
    if instruction.opcode in SAME_PLACE:
        matter = [operand for operand in instruction.operands if reads[operand]]
        return all(_order(operand) == _order(instruction) for operand in matter)
    named = _dimensions_of_operand(instruction)
    operand = instruction.operands[0]
    if named is None or reads[operand] != set().union(*(reads[x] for x in instruction.operands)):
        return False
    larger = [size for size in instruction.shape.dimensions if size != 1]
    if sorted(larger) != sorted(size for size in operand.shape.dimensions if size != 1):
        return False
    return [named[dimension] for dimension in _order(instruction)] == _order(operand)


def _order(instruction: HloInstruction) -> list[int]:
    """The dimensions larger than 1, the most minor first."""
    shape = instruction.shape
    order = shape.layout.minor_to_major if shape.layout else range(shape.rank - 1, -1, -1)
    return [dimension for dimension in order if shape.dimensions[dimension] != 1]


def _dimensions_of_operand(instruction: HloInstruction) -> dict[int, int] | None:
    """The first operand's dimension for each of the result's; None if there is no such map."""
    opcode, rank = instruction.opcode, instruction.operands[0].shape.rank
    if opcode == "transpose":
        return dict(enumerate(instruction.integers("dimensions")))
    if opcode == "broadcast":
        return {
            dimension: number for number, dimension in enumerate(instruction.integers("dimensions"))
        }
    if opcode == "reduce":
        dropped = instruction.integers("dimensions")
        return dict(enumerate(dimension for dimension in range(rank) if dimension not in dropped))
    if "slice" in opcode or (
        opcode == "pad" and set(instruction.attributes.get("padding", "")) <= set("0_x")
    ):
        return dict(enumerate(range(rank)))
    return None


def _starts(instruction: HloInstruction, first_index: int) -> tuple[object, ...]:
    """The starts, numbers or instructions, of a slice in its operand's dimensions larger than 1."""
    dimensions = instruction.operands[0].shape.dimensions
    starts: list[object]
    if instruction.opcode == "slice":
        text = instruction.attributes.get("slice", "")
        starts = [part.strip(" {}[]").split(":")[0] for part in text.split(",")]
    else:
        starts = [_number(start) for start in instruction.operands[first_index:]]
    if len(starts) != len(dimensions):
        return (instruction,)  # unknown: equal to no other
    return tuple(start for start, size in zip(starts, dimensions, strict=True) if size != 1)


def _number(start: HloInstruction) -> object:
    while start.opcode in KEEPS_NUMBER:
        start = start.operands[0]
    return start.payload.strip() if start.opcode == "constant" else start
