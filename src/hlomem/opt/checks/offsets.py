"""Slices annotated with where they begin in each iteration of the loop around, as by their indices.

XLA:GPU goes by what they say (`AnalyzeDynamicSliceCopyFusion`,
xla/backends/gpu/transforms/dynamic_slice_copy.cc) and looks at no index. Those of a given program
are right; one that stands where none stood before must say what its indices come to.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape

SLICES = ("dynamic-slice", "dynamic-update-slice")
CONFIG, _NOTE = "backend_config", "dynamic_slice_config"
_LINEAR = "linear"
_FIELDS = frozenset({"loop_index", "byte_offset", "byte_stride", _LINEAR})
_BYTE = 8
_Place: TypeAlias = "tuple[str, ...]"


def find_offset_problems(given: HloModule, edited: HloModule) -> list[str]:
    """Annotated slices of an edited module that the given one does not have."""
    return [wrong_offset(one) for one in new_slices(given, edited)]


def wrong_offset(slice_: HloInstruction) -> str:
    return f"{slice_.name} does not begin where its indices say"


def new_slices(given: HloModule, edited: HloModule) -> list[HloInstruction]:
    """Those of an edited module that say where they begin, and do not stand so in the given one."""
    told = list(_iter_told(edited))
    known = {place for _, places in _iter_told(given) for place in places} if told else set()
    return [one for one, places in told if not known.issuperset(places)]


def _iter_told(module: HloModule) -> Iterator[tuple[HloInstruction, list[_Place]]]:
    """Slices that say where they begin, with all that must not be another."""
    callers: dict[HloComputation, list[HloInstruction]] = {}
    told: list[HloInstruction] = []
    for computation in module.computations:
        for one in computation.instructions:
            for callee in one.called_computations:
                callers.setdefault(callee, []).append(one)
            if one.opcode in SLICES and says_offset(one):
                told.append(one)
    for one in told:
        if not one.parent.is_entry and one.parent not in callers:
            continue  # nothing runs it
        shapes = [one.shape.text, *(operand.shape.text for operand in one.operands)]
        said = one.attributes[CONFIG]
        yield one, [(said, *shapes, *path) for path in _paths(one, callers)]


def _paths(
    one: HloInstruction, callers: dict[HloComputation, list[HloInstruction]]
) -> list[_Place]:
    """The names of all that an instruction runs in, out to the loop's body or the entry."""
    outside = callers.get(one.parent, ())
    here = (one.name, one.parent.name)
    if not outside or any(caller.opcode == "while" for caller in outside):
        return [here]
    return [(*here, *path) for caller in outside for path in _paths(caller, callers)]


def says_offset(instruction: HloInstruction) -> bool:
    return _NOTE in instruction.attributes.get(CONFIG, "")


def said_offset(slice_: HloInstruction, iterations: Sequence[int]) -> int | None:
    """The byte a slice is annotated to begin at; iterations are of the loops, outer first."""
    config: Any = json.loads(slice_.attributes[CONFIG])
    note = config[_NOTE]
    if not _FIELDS.issuperset(note):
        return None
    line = note.get(_LINEAR, note)
    offset, stride = (int(line.get(name, 0)) for name in ("byte_offset", "byte_stride"))
    loop = int(note.get("loop_index", 0))
    if not stride:
        return offset
    return offset + stride * iterations[-1 - loop] if loop < len(iterations) else None


def offset_by_indices(whole: Shape, part: Shape, starts: Sequence[int | None]) -> int | None:
    """The byte a slice begins at by its indices; None where that is not known."""
    layout = whole.layout
    if layout is None or layout.tiles or any(whole.dynamic) or layout.element_size_in_bits % _BYTE:
        return None
    stride, offset = whole.element_type.byte_width, 0  # a pred takes a byte
    for dimension in layout.minor_to_major:
        start, size = starts[dimension], whole.dimensions[dimension]
        if start is None:
            return None
        offset += stride * min(max(start, 0), size - part.dimensions[dimension])
        stride *= size
    return offset
