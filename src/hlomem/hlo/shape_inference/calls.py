"""Shapes of tuples, calls, loops and branches.

Mirrors `InferCallShape`, `InferWhileShape`, `InferConditionalShape`, `InferMapShape`, and what
`HloParserImpl::CreateInstruction` infers itself: elements of tuples, scans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import ElementType, Shape, tuple_shape
from hlomem.hlo.shape_inference.elements import (
    Case,
    compatible,
    dynamic_flags,
    is_scalar,
    make_shape,
    require,
    require_arrays,
    require_distinct,
    resized,
    same_dimensions,
    same_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.text.attributes import ProgramShape


def infer_tuple(case: Case) -> Shape:
    """The tuple of the operands."""
    return tuple_shape(case.operands)


def infer_element(case: Case) -> Shape:
    """The element of a tuple."""
    [whole] = case.operands
    index = case.integer("index")
    require(whole.is_tuple and 0 <= index < len(whole.elements))
    return whole.elements[index]


def infer_call(case: Case) -> Shape:
    """The result of the callee."""
    [callee] = case.callees
    _check_arguments(callee, *case.operands)
    return callee.result


def _check_arguments(callee: ProgramShape, *arguments: Shape) -> None:
    require(len(callee.parameters) == len(arguments))
    require(*map(compatible, callee.parameters, arguments))


def infer_while(case: Case) -> Shape:
    """The shape of what the loop begins with."""
    [state] = case.operands
    body, condition = case.callees
    _check_arguments(body, state)
    _check_arguments(condition, state)
    require(compatible(body.result, state))
    require(compatible(condition.result, Shape(ElementType.PRED)))
    return state


def infer_conditional(case: Case) -> Shape:
    """The result of the branches, dynamic where that of one is."""
    index, *arguments = case.operands
    require(is_scalar(index), index.element_type in (ElementType.PRED, ElementType.S32))
    require(0 < len(case.callees) == len(arguments))
    first = case.callees[0].result
    for branch, argument in zip(case.callees, arguments, strict=True):
        _check_arguments(branch, argument)
        require(compatible(first, branch.result))
    return _joined([branch.result for branch in case.callees])


def _joined(results: Sequence[Shape]) -> Shape:
    """The first result, with the dimensions dynamic that are so in any; parts before wholes."""
    made: list[Shape] = []
    pending: list[tuple[tuple[Shape, ...], bool]] = [(tuple(results), False)]
    while pending:
        parts, is_ready = pending.pop()
        first = parts[0]
        if first.is_array:
            flags = zip(*map(dynamic_flags, parts), strict=True)
            made.append(resized(first, first.dimensions, [any(column) for column in flags]))
        elif not first.is_tuple:
            made.append(first)
        elif is_ready:
            start = len(made) - len(first.elements)
            made[start:] = [tuple_shape(made[start:])]
        else:
            columns = [*zip(*[part.elements for part in parts], strict=True)]
            pending.append((parts, True))
            pending += [(column, False) for column in reversed(columns)]
    return made.pop()


def infer_map(case: Case) -> Shape:
    """The shape of the operands, of what the computation returns for an element."""
    require(bool(case.operands))
    [callee] = case.callees
    whole = case.operands[0]
    for shape in case.operands[1:]:
        require_arrays(shape)
        if is_scalar(whole) and same_type(whole, shape):
            whole = shape
        fits = is_scalar(shape) and same_type(whole, shape)
        require(fits or same_dimensions(whole, shape))
    require(case.integers("dimensions") == tuple(range(whole.rank)))
    require(len(callee.parameters) == len(case.operands), *map(is_scalar, callee.parameters))
    require(is_scalar(callee.result), *map(same_type, callee.parameters, case.operands))
    return make_shape(callee.result.element_type, whole.dimensions, dynamic_flags(whole))


def infer_scan(case: Case) -> Shape:
    """The root of the body; what is stacked gets the dimension that is scanned."""
    [callee] = case.callees
    carries, [number] = case.integer("num_carries"), case.integers("dimensions")
    require(len(case.operands) > carries)
    first = case.operands[0]
    require_distinct([number], first.rank)
    size, result = first.dimensions[number], callee.result
    if not result.is_tuple:
        return result if carries else _inserted(result, number, size)
    count = len(result.elements) - carries
    stacked = [_inserted(shape, number, size) for shape in result.elements[:count]]
    return tuple_shape([*stacked, *result.elements[len(stacked) :]])


def _inserted(shape: Shape, number: int, size: int) -> Shape:
    require_arrays(shape)
    require(number <= shape.rank)
    sizes = (*shape.dimensions[:number], size, *shape.dimensions[number:])
    return make_shape(shape.element_type, sizes)
