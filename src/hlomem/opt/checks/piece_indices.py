"""Columns of indices that count along the rows, in the terms of the given program."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.opt.checks.piece_terms import Terms, Value


def counts_along(terms: Terms, indices: Value, rows: int, vector: int, column: int) -> int | None:
    """How far a column counts that is, cut along the rows in parts, cut in parts of its numbers.

    So is an iota along the rows; concatenated with other columns; and in another shape whose rows
    begin with the same dimension, columns being the last.
    """
    if not isinstance(indices, int):
        return None
    shape, made, operands, _ = terms.terms[indices]
    if made is None:
        return None
    if made.opcode == "iota":
        is_along = int(made.attributes["iota_dimension"]) == rows != vector
        return shape.dimensions[rows] if is_along else None
    if made.opcode == "concatenate":
        if made.integers("dimensions") != (vector,) or rows == vector:
            return None
        for operand, term in zip(made.operands, operands, strict=True):
            size = operand.shape.dimensions[vector]
            if column < size:
                return counts_along(terms, term, rows, vector, column)
            column -= size
        return None
    if made.opcode not in ("bitcast", "reshape"):
        return None
    given = made.operands[0].shape
    for one in (given, shape):
        if one.layout is not None and one.layout.minor_to_major != tuple(range(one.rank))[::-1]:
            return None
    is_apart = vector == shape.rank - 1 and given.dimensions[-1] == shape.dimensions[-1]
    if not is_apart or prod(shape.dimensions[:rows]) != 1:
        return None
    first = [one for one, size in enumerate(given.dimensions[:-1]) if size > 1]
    return counts_along(terms, operands[0], first[0], given.rank - 1, column) if first else None
