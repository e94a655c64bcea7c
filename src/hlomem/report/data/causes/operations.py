"""The operations of a module by their JAX names, inside fusions as well, without linking."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.text.attributes import METADATA, read_op_name
from hlomem.hlo.text.named_rows import NamedRow, NamedRows, named_rows
from hlomem.report.data.matching import operation_key
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.hlo.ir import HloComputation, HloModule
    from hlomem.hlo.shape import Shape


class Array(NamedTuple):
    dtype: str
    dimensions: tuple[int, ...]


class Operation(NamedTuple):
    name: str
    """Without the scopes that only some versions of JAX add."""
    opcode: str
    array: Array | None
    """None for a tuple."""
    is_fused: bool
    text: str
    """Its metadata, possibly with other attributes."""


def array_of(shape: Shape | None) -> Array | None:
    if shape is None or not shape.is_array:
        return None
    return Array(str(shape.element_type.text), tuple(shape.dimensions))


@lru_cache(maxsize=4096)
def _array_of_text(shape_text: str) -> Array | None:
    return array_of(parse_shape_or_none(shape_text))


class OperationReader:
    """Reads the operations of modules; equal texts are read once."""

    def __init__(self) -> None:
        self._rows: dict[str, NamedRows | None] = {}
        self._bodies: tuple[dict[str, list[Operation]], ...] = ({}, {})
        """The operations by body text: outside fusions, and inside."""
        self._operations: tuple[dict[NamedRow, Operation | None], ...] = ({}, {})
        self._names: dict[str, str] = {}

    def operations(self, module: HloModule) -> Iterable[Operation]:
        fused = module.fused_computations
        found: dict[int, Operation] = {}
        for computation in module.computations:  # a sugared async operation adds one when read
            operations = self._operations_of(computation, computation in fused)
            found.update(zip(map(id, operations), operations, strict=True))
        return found.values()

    def _operations_of(self, computation: HloComputation, is_fused: bool) -> list[Operation]:
        text, known = computation.body_text, self._bodies[is_fused]
        if text is not None and text in known:
            return known[text]
        operations = self._operations[is_fused]
        rows = self._rows_of(computation, text).rows
        for row in rows:
            if row not in operations:
                operations[row] = self._operation(row, is_fused)
        found = [operation for operation in map(operations.__getitem__, rows) if operation]
        if text is not None:
            known[text] = found
        return found

    def are_fused_alike(self, one: HloModule | None, other: HloModule | None) -> bool:
        sides = [tuple(module.fused_computations) if module else () for module in (one, other)]
        texts = [Counter(computation.body_text for computation in side) for side in sides]
        common = texts[0] & texts[1]
        names = [Counter(map(self._names_of, _without(side, common))) for side in sides]
        return names[0] == names[1]

    def _names_of(self, computation: HloComputation) -> frozenset[str]:
        """The operation names of a body; "" for unnamed ones."""
        rows, is_complete = self._rows_of(computation, computation.body_text)
        found = {self._name(metadata) for _, _, metadata in rows}
        return frozenset(found if is_complete else found | {""})

    def _rows_of(self, computation: HloComputation, text: str | None) -> NamedRows:
        if text is None:
            return _linked_rows(computation)
        if text not in self._rows:
            self._rows[text] = named_rows(text)
        return self._rows[text] or _linked_rows(computation)

    def _operation(self, row: NamedRow, is_fused: bool) -> Operation | None:
        shape_text, opcode, metadata = row
        name = self._name(metadata)
        if not name or opcode == "parameter":
            return None
        return Operation(name, opcode, _array_of_text(shape_text), is_fused, metadata)

    def _name(self, metadata: str) -> str:
        if metadata not in self._names:
            self._names[metadata] = operation_key(read_op_name(metadata))
        return self._names[metadata]


def _linked_rows(computation: HloComputation) -> NamedRows:
    """The rows of a body that must be linked or has no text."""
    rows: list[NamedRow] = [
        (
            instruction.shape.text,
            instruction.opcode,
            METADATA.removesuffix("{") + instruction.attributes["metadata"],
        )
        for instruction in computation.instructions
        if "metadata" in instruction.attributes
    ]
    return NamedRows(rows, len(rows) == len(computation.instructions))


def _without(
    computations: Iterable[HloComputation], common: Counter[str | None]
) -> Iterator[HloComputation]:
    """The computations minus the common ones of each text."""
    left = common.copy()
    for computation in computations:
        text = computation.body_text
        if text is not None and left[text] > 0:
            left[text] -= 1
        else:
            yield computation
