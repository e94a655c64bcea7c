"""`padding`: choose dimensions, or a layout, that fill the tiles; a possibility.

One advice for the array with most padding. A larger dimension takes the same memory and holds more;
it saves nothing. Where another dimension would fill the tiles, the layout is what wastes: the
instruction that has it by its operation is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.functions import last_parts
from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice
from hlomem.report.data.lines import Lines
from hlomem.report.data.padding import PaddedShape, build_padding
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.hlo.ir import HloInstruction

LINK = "https://openxla.org/xla/tiled_layout"
_WORTH = 0.01
_DEMANDING = frozenset(
    {"scatter", "gather", "dot", "convolution", "sort", "custom-call", "reduce-window", "fft"}
)
"""Opcodes whose operation decides a layout; others take what they are given."""
_PRIMITIVES = frozenset(
    {
        "scatter",
        "scatter-add",
        "scatter_add",
        "gather",
        "dot_general",
        "conv_general_dilated",
        "sort",
    }
)
"""The same by JAX's names, which stay when a compiler writes the operation another way."""


def advise_padding(subject: Case) -> Iterator[Advice]:
    """One advice for the worst."""
    padding = build_padding(subject.memory, subject.space)
    worst = next((row for row in padding.rows if row.fix and row.padding_at_peak), None)
    if worst is None or worst.padding_at_peak <= _WORTH * subject.space.size:
        return
    shape = worst.shape.partition("{")[0]
    culprit = _find_culprit(subject, worst)
    how = worst.fix
    if culprit is not None:
        line = Lines(subject.module).origin_in(culprit).line
        where = f" at {last_parts(line)}" if line else ""
        what = _primitive(culprit) if _is_named(culprit) else culprit.opcode
        how = f"the layout is that of {what}{where}: write it another way\n{how}"
    yield Advice(
        rule="padding",
        title=f"fill the tiles: {format_bytes(padding.padding_at_peak)} hold nothing at the peak,"
        f" most of it in {shape}",
        argument=shape,
        method="possible",
        confidence="low",
        cost="changes the shapes of the model or of its activations",
        how=how,
        link=LINK,
    )


def _find_culprit(subject: Case, worst: PaddedShape) -> HloInstruction | None:
    """An instruction that asks for the same dimension in the lanes, where another would fill them.

    A loop stacks values along a first dimension that they do not have in its body.
    """
    shape = parse_shape_or_none(worst.shape)
    if shape is None or shape.layout is None or not shape.dimensions:
        return None
    minor = shape.layout.minor_to_major[0]
    grown = next((growth for growth in worst.growths if growth.dimension == minor), None)
    if grown is None or not any(size >= grown.padded_size for size in shape.dimensions):
        return None
    wanted = {(shape.dimensions, minor), (shape.dimensions[1:], minor - 1)}
    for instruction in subject.module.iter_instructions():
        layout = instruction.shape.layout if instruction.shape.is_array else None
        first = layout.minor_to_major[:1] if layout is not None else ()
        own = {(instruction.shape.dimensions, lanes) for lanes in first}
        is_asking = instruction.opcode in _DEMANDING and instruction.operands
        if own & wanted and (is_asking or _is_named(instruction)):
            return instruction
    return None


def _primitive(instruction: HloInstruction) -> str:
    return (instruction.metadata.op_name or "").rpartition("/")[2]


def _is_named(instruction: HloInstruction) -> bool:
    return _primitive(instruction) in _PRIMITIVES
