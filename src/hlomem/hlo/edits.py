"""The text of a module with one thing changed: what somebody could have written instead.

Each function takes a module and returns text; the module stays as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import ShapeIndex

_ALIASES = "input_output_alias"
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = ", re.MULTILINE)


def with_aliases(module: HloModule, parameter_of: Mapping[ShapeIndex, int]) -> str:
    """Results at these indices take the memory of these entry parameters, beside those that do."""
    text = module.source.text
    known = [
        f"{each.output_index}: ({each.parameter_number}, {each.parameter_index}, may-alias)"
        for each in module.input_output_alias
    ]
    new = [f"{index}: ({number}, {{}}, may-alias)" for index, number in parameter_of.items()]
    attribute = f"{_ALIASES}={{ {', '.join([*known, *new])} }}"
    if _ALIASES in module.attributes:
        return text.replace(f"{_ALIASES}={module.attributes[_ALIASES]}", attribute, 1)
    end = text.index("HloModule ") + len(f"HloModule {module.name}")
    return f"{text[:end]}, {attribute}{text[end:]}"


def with_element_type(module: HloModule, old: str, new: str) -> str:
    """Every array of one element type has another."""
    return re.sub(rf"\b{old}\[", f"{new}[", module.source.text)


def without_copy(copy: HloInstruction, *, keeps_layout: bool) -> str:
    """Whoever reads a copy reads what it copies, in the layout of the copy or in its own."""
    text = copy.parent.module.source.text
    [source] = copy.operands
    start, end = _line_of(text, source)
    line = text[start:end]
    if not keeps_layout:
        line = line.replace(f" {source.shape} ", f" {copy.shape} ", 1)
    if copy.is_root:
        line = re.sub(r"^(\s*)", r"\1ROOT ", line, count=1)
    edits = [(_line_of(text, copy), ""), ((start, end), line)]
    for (start, end), new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return re.sub(rf"(?<![\w.-]){re.escape(copy.name)}(?![\w.-])", source.name, text)


def with_order(module: HloModule, orders: Iterable[Sequence[HloInstruction]]) -> str:
    """Each computation's instructions stand in the order given for it."""
    text = module.source.text
    regions = []
    for order in orders:
        lines = _lines_of(text, order[0].parent)
        start, end = min(lines.values())[0], max(lines.values())[1]
        regions.append((start, end, "".join(text[slice(*lines[each.name])] for each in order)))
    for start, end, new in sorted(regions, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def as_scheduled(module: HloModule, orders: Iterable[Sequence[HloInstruction]]) -> str:
    """The same, and the text says that this is the order in which they run."""
    text = with_order(module, orders)
    if module.is_scheduled:
        return text
    end = text.index("HloModule ") + len(f"HloModule {module.name}")
    return f"{text[:end]}, is_scheduled=true{text[end:]}"


def _lines_of(text: str, computation: HloComputation) -> dict[str, tuple[int, int]]:
    """The lines of a computation's instructions, with their ends, by name."""
    start, _ = _line_of(text, computation.instructions[0])
    end = text.index("\n}", start) + 1
    starts = [(found[1], found.start()) for found in _INSTRUCTION.finditer(text, start, end)]
    ends = [*(place for _, place in starts[1:]), end]
    return {name: (place, stop) for (name, place), stop in zip(starts, ends, strict=True)}


def _line_of(text: str, instruction: HloInstruction) -> tuple[int, int]:
    """The line an instruction stands on, with its end."""
    place = instruction.span.start
    return text.rfind("\n", 0, place) + 1, text.index("\n", place) + 1
