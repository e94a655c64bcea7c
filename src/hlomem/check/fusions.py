"""Whether a fusion may write its result over an operand, by what happens inside it.

A fusion computes element by element. Written over an operand, it must read that operand only at the
element it is about to write, by its place in memory:

    p ──── negate ──── add        fine: element i of p, then element i of the result
    p ─┬─ slice [0:3] ─┐
       └───────────── dynamic-update-slice at 1       wrong: element 0 is read for element 1,
                                                      after element 0 of p may be overwritten

An update that reads the very window it writes is fine, and so is one of a single element, which is
known before it is written. Openxla/xla issue 49176 is the second kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.view.families import UPDATES

if TYPE_CHECKING:
    from hlomem.dump.records import ShapeIndex
    from hlomem.hlo.ir import HloComputation, HloInstruction

_SAME_PLACE = """
    abs acos acosh add add-dependency and asin asinh atan2 atanh cbrt ceil clamp compare complex
    convert copy cosine cosh count-leading-zeros divide erf exponential exponential-minus-one floor
    imag is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not
    opt-barrier or popcnt power real reduce-precision remainder round-nearest-afz round-nearest-even
    rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sinh sqrt
    stochastic-convert subtract tan tanh xor
"""
_ELEMENTWISE = frozenset(_SAME_PLACE.split())
_SAME_BYTES = frozenset({"bitcast", "bitcast-convert", "reshape", "tuple"})
_MAX_NESTED = 20
"""Fusions inside fusions that are looked into."""
_MAX_COPIED = 20
"""Instructions between two copies that are looked through."""


class Window(NamedTuple):
    """Elements read of the shared operand: from these places on, in dimensions larger than 1."""

    starts: tuple[object, ...]


class StrayRead(NamedTuple):
    """Elements read at other places than the one that is written."""

    instruction: str
    opcode: str
    detail: str = ""


SAME = Window(())
Read: TypeAlias = "Window | StrayRead"
"""How a result depends on the shared operand."""


def find_stray_read(
    fusion: HloInstruction, operand: int, output: ShapeIndex, depth: int = 0
) -> StrayRead | None:
    """An instruction inside `fusion` that reads an operand elsewhere than its output writes."""
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


def _writes_one_element(root: HloInstruction, shared: HloInstruction) -> bool:
    """Whether all that is written into the shared operand is one element.

    Whatever that element is made of is read before (`EmitFusedDynamicUpdateSliceInPlace`, which
    goes over the elements of the update only).
    """
    if root.opcode != "dynamic-update-slice" or root.operands[0] is not shared:
        return False
    return all(size == 1 for size in root.operands[1].shape.dimensions)


def _may_update(body: HloComputation) -> bool:
    """Whether the text of a body names an update, so that it must be read to know."""
    text = body.body_text
    return text is None or any(word in text for word in UPDATES)


def updated_operands(fusion: HloInstruction) -> list[tuple[ShapeIndex, int]]:
    """The outputs that are an operand with a part of it replaced, each with that operand."""
    if not _may_update(fusion.called_computations[0]):
        return []
    root = fusion.called_computations[0].root
    outputs: list[tuple[ShapeIndex, HloInstruction]] = [((), root)]
    if root.opcode == "tuple":
        outputs = [((number,), each) for number, each in enumerate(root.operands)]
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
    operands = [reads[each] for each in instruction.operands]
    everything: set[Read] = set().union(*operands)
    if not everything:
        return everything
    opcode = instruction.opcode
    if opcode == "get-tuple-element" and instruction.operands[0].opcode == "tuple":
        return _taken_out(instruction, reads)
    strays = {each for each in everything if isinstance(each, StrayRead)}
    if strays:
        source = _moved_back(instruction, reads) if opcode == "copy" else None
        return set(strays) if source is None else reads[source]
    if opcode in _SAME_BYTES or opcode == "get-tuple-element" or _keeps_places(instruction, reads):
        return everything
    if opcode == "fusion":
        return everything | _reads_of_fusion(instruction, operands, depth)
    if opcode in ("slice", "dynamic-slice") and not set().union(*operands[1:]):
        return {Window(_starts(instruction, 1))} if everything == {SAME} else {_stray(instruction)}
    if opcode == "dynamic-update-slice" and not set().union(*operands[2:]):
        return _reads_of_update(instruction, operands[0], operands[1])
    if opcode == "scatter" and not set().union(*operands[1:]):
        return everything
    return {_stray(instruction)}


def _taken_out(instruction: HloInstruction, reads: dict[HloInstruction, set[Read]]) -> set[Read]:
    """What a get-tuple-element takes out of a tuple that was just made."""
    return reads[instruction.operands[0].operands[instruction.tuple_index]]


def _moved_back(
    instruction: HloInstruction, reads: dict[HloInstruction, set[Read]]
) -> HloInstruction | None:
    """Whose elements a copy brings back to the places they had before another copy.

    A fusion stores nothing on the way, so that only the layouts it reads and writes count.
    """
    source = instruction
    for _ in range(_MAX_COPIED):
        matter = [each for each in source.operands if reads[each]]
        if source.opcode not in _ELEMENTWISE or len(matter) != 1:
            return None
        source = matter[0]
        is_astray = any(isinstance(each, StrayRead) for each in reads[source])
        if not is_astray and _order(source) == _order(instruction):
            return source
    return None


def _reads_of_fusion(fusion: HloInstruction, operands: list[set[Read]], depth: int) -> set[Read]:
    """The strays inside a fusion inside a fusion."""
    if depth == _MAX_NESTED or fusion.shape.is_tuple:
        return {_stray(fusion)}
    numbers = [number for number, read in enumerate(operands) if read]
    strays = [find_stray_read(fusion, number, (), depth + 1) for number in numbers]
    return {each for each in strays if each is not None}


def _reads_of_update(update: HloInstruction, base: set[Read], new: set[Read]) -> set[Read]:
    """A window that is written may be read; nothing else of the shared operand may."""
    window = Window(_starts(update, 2))
    if new - {window}:
        if new == {SAME} and _is_whole(update.operands[1], update):
            return base | new
        windows = {each for each in new - {window} if isinstance(each, Window)}
        read = " and ".join(sorted(map(_describe, windows)))
        return {
            StrayRead(
                update.name, update.opcode, f": elements from {read} on go to {_describe(window)}"
            )
        }
    return base | {SAME}


def _describe(window: Window) -> str:
    """A window as `[0, i]`."""
    return "[" + ", ".join(str(getattr(each, "name", each)) for each in window.starts) + "]"


def _is_whole(part: HloInstruction, whole: HloInstruction) -> bool:
    return part.shape.dimensions == whole.shape.dimensions


def _stray(instruction: HloInstruction) -> StrayRead:
    return StrayRead(instruction.name, instruction.opcode)


def _keeps_places(instruction: HloInstruction, reads: dict[HloInstruction, set[Read]]) -> bool:
    """Whether every element stays at its place in memory, from each operand that matters.

    Element-wise instructions do where layouts agree; a transpose, broadcast, reduction, slice or
    pad where it does no more than to rename dimensions, and to add or drop those of one element.
    """
    if instruction.opcode in _ELEMENTWISE:
        matter = [each for each in instruction.operands if reads[each]]
        return all(_order(each) == _order(instruction) for each in matter)
    named = _dimensions_of_operand(instruction)
    operand = instruction.operands[0]
    if named is None or reads[operand] != set().union(*(reads[x] for x in instruction.operands)):
        return False
    larger = [each for each in instruction.shape.dimensions if each != 1]
    if sorted(larger) != sorted(each for each in operand.shape.dimensions if each != 1):
        return False
    return [named[each] for each in _order(instruction)] == _order(operand)


def _order(instruction: HloInstruction) -> list[int]:
    """The dimensions with several elements, the most minor first."""
    shape = instruction.shape
    order = (
        shape.layout.minor_to_major if shape.layout else range(len(shape.dimensions) - 1, -1, -1)
    )
    return [each for each in order if shape.dimensions[each] != 1]


def _dimensions_of_operand(instruction: HloInstruction) -> dict[int, int] | None:
    """For dimensions of a result, those of the first operand; None where it is not so simple."""
    opcode, rank = instruction.opcode, len(instruction.operands[0].shape.dimensions)
    if opcode == "transpose":
        return dict(enumerate(instruction.integers("dimensions")))
    if opcode == "broadcast":
        return {place: number for number, place in enumerate(instruction.integers("dimensions"))}
    if opcode == "reduce":
        dropped = instruction.integers("dimensions")
        return dict(enumerate(each for each in range(rank) if each not in dropped))
    is_unpadded = opcode == "pad" and not set(instruction.attributes.get("padding", "")) - set(
        "0_x"
    )
    return {each: each for each in range(rank)} if is_unpadded or "slice" in opcode else None


def _starts(instruction: HloInstruction, first_index: int) -> tuple[object, ...]:
    """Where a slice or update begins, in the dimensions of its operand with several elements.

    A number where it is constant, else the instruction that computes it.
    """
    dimensions = instruction.operands[0].shape.dimensions
    starts: list[object]
    if instruction.opcode == "slice":
        text = instruction.attributes.get("slice", "")
        starts = [part.strip(" {}[]").split(":")[0] for part in text.split(",")]
    else:
        starts = [_number(each) for each in instruction.operands[first_index:]]
    if len(starts) != len(dimensions):
        return (instruction,)  # not what we know how to compare: equal to nothing else
    return tuple(start for start, size in zip(starts, dimensions, strict=True) if size != 1)


def _number(start: HloInstruction) -> object:
    while start.opcode in ("bitcast", "reshape", "copy", "convert"):
        start = start.operands[0]
    return start.payload.strip() if start.opcode == "constant" else start
