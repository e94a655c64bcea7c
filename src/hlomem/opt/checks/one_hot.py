"""Scatters of one element for each row of zeros, as the selection they are equal to.

Where all indices but one count the rows, no two updates meet: an element of the result is zero plus
the update of its row where the last index names its column, else zero. An index out of bounds names
no column, and its update is dropped.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hlomem.hlo.shape import ElementType, Shape, default_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction

_FLOATS = ("bf16", "f16", "f32", "f64")


class Term(NamedTuple):
    """A term: the operation that it is of, if it is of one."""

    opcode: str
    attributes: Mapping[str, str]
    payload: str
    operands: Sequence[int]
    shape: Shape


class Terms(Protocol):
    def look(self, term: int) -> Term:
        """The operation that a term is of, bitcasts left out."""

    def make(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[int] = (),
        attributes: Mapping[str, str] | None = None,
        payload: str = "",
    ) -> int: ...

    def view(self, shape: Shape, term: int) -> int:
        """The bytes of a term in a shape."""


class _Rows(NamedTuple):
    axis: int
    """The dimension whose index is not counted."""
    column: int


def selection_of(scatter: HloInstruction, operands: Sequence[int], terms: Terms) -> int | None:
    """The selection that a scatter is equal to; None for others."""
    shape = scatter.shape
    if len(operands) != 3 or shape.element_type.text not in _FLOATS or not _is_plain(shape):
        return None
    combined = _combiner(scatter.called_computations[0])
    rows = _find_rows(scatter, operands[1], terms) if combined else None
    if rows is None or not _is_zeros(operands[0], terms):
        return None
    batch = [number for number in range(shape.rank) if number != rows.axis]
    sizes = tuple([shape.dimensions[number] for number in batch])
    dimensions = {"dimensions": f"{{{','.join(map(str, batch))}}}"}
    index_type = terms.look(rows.column).shape.element_type
    whole = Shape(index_type, shape.dimensions, (), shape.layout)
    index = terms.view(_plain(index_type, sizes), rows.column)
    index = terms.make("broadcast", whole, [index], dimensions)
    counted = terms.make("iota", whole, (), {"iota_dimension": str(rows.axis)})
    mask = Shape(ElementType.PRED, shape.dimensions, (), shape.layout)
    is_here = terms.make("compare", mask, [index, counted], {"direction": "EQ"})
    zero = terms.make("constant", _plain(shape.element_type, ()), payload="0")
    zeros = terms.make("broadcast", shape, [zero], {"dimensions": "{}"})
    update = terms.look(operands[2])
    if _is_number(update, terms):
        value = terms.make("broadcast", shape, update.operands, {"dimensions": "{}"})
    else:
        row = _plain(shape.element_type, sizes)
        value = terms.view(row, operands[2])
        if combined == "add":
            no = terms.make("broadcast", row, [zero], {"dimensions": "{}"})
            value = terms.make("add", row, [no, value])
        value = terms.make("broadcast", shape, [value], dimensions)
    return terms.make("select", shape, [is_here, value, zeros])


def _plain(element_type: ElementType, sizes: tuple[int, ...]) -> Shape:
    return Shape(element_type, sizes, (), default_layout(len(sizes)))


def _is_plain(shape: Shape) -> bool:
    """Whether elements lie row by row."""
    return shape.is_array and shape.layout == default_layout(shape.rank) and not any(shape.dynamic)


def _combiner(body: HloComputation) -> str:
    """How updates are combined: `add`, `update` for those that replace; empty for others."""
    root = body.root
    if root.opcode == "parameter" and root.parameter_number == 1:
        return "update"
    given = sorted(one.parameter_number for one in root.operands if one.opcode == "parameter")
    return "add" if root.opcode == "add" and given == [0, 1] else ""


def _find_rows(scatter: HloInstruction, indices: int, terms: Terms) -> _Rows | None:
    """The one index that does not count rows, if all others do, in order and each once."""
    shape, rank = scatter.shape, scatter.shape.rank
    rows, updates = scatter.operands[1].shape, scatter.operands[2].shape
    said = {name: scatter.integers(name) for name in ("update_window_dims", "inserted_window_dims")}
    is_usual = (
        said["update_window_dims"] == tuple(range(1, rank + 1))
        and not said["inserted_window_dims"]
        and scatter.integers("scatter_dims_to_operand_dims") == tuple(range(rank))
        and scatter.attributes.get("index_vector_dim") == "1"
        and "input_batching_dims" not in scatter.attributes
        and updates.dimensions == (rows.dimensions[0], *[1] * rank)
        and _is_plain(rows)
        and _is_plain(updates)
    )
    joined = terms.look(indices)
    if not is_usual or joined.opcode != "concatenate" or not _is_plain(joined.shape):
        return None
    batch, last = joined.shape.dimensions[:-1], joined.shape.rank - 1
    if joined.attributes.get("dimensions") != f"{{{last}}}" or len(joined.operands) != rank:
        return None
    parts = [terms.look(part) for part in joined.operands]
    counting = [_counted(part, batch) for part in parts]
    free = [number for number, counted in enumerate(counting) if counted is None]
    numbers = [counted for counted in counting if counted is not None]
    if len(free) != 1 or numbers != sorted(set(numbers)):
        return None
    sizes = [shape.dimensions[number] for number in range(rank) if number != free[0]]
    if [batch[counted] for counted in numbers] != sizes or prod(batch) != prod(sizes):
        return None
    return _Rows(free[0], joined.operands[free[0]])


def _counted(part: Term, batch: tuple[int, ...]) -> int | None:
    """The dimension that a part of the indices counts."""
    if part.opcode != "iota" or part.shape.dimensions != (*batch, 1):
        return None
    dimension = int(part.attributes.get("iota_dimension", "-1"))
    return dimension if 0 <= dimension < len(batch) else None


def _is_zeros(term: int, terms: Terms) -> bool:
    made = terms.look(term)
    if made.opcode != "broadcast":
        return False
    number = terms.look(made.operands[0])
    return number.opcode == "constant" and number.payload == "0"


def _is_number(update: Term, terms: Terms) -> bool:
    """Whether all updates are one number that is not changed by adding it to zero."""
    if update.opcode != "broadcast":
        return False
    number = terms.look(update.operands[0])
    return number.opcode == "constant" and not number.shape.dimensions and _is_not_zero(number)


def _is_not_zero(number: Term) -> bool:
    try:
        return float(number.payload) != 0
    except ValueError:
        return False
