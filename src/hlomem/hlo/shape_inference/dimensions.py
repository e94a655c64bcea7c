"""Shapes of operations that move, drop, join or fold dimensions.

Mirrors `InferBroadcastShape`, `InferConcatOpShape`, `InferPadShape`, `InferTransposeShape`,
`InferReverseShape`, `InferReduceShape`, `InferReduceWindowShape`, `InferSelectAndScatterShape`,
`InferTopKShape`, `InferGetDimensionSizeShape`, `InferSetDimensionSizeShape`, and the checks
`VerifyReducerShape` and `InferWindowOutputShape` they share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import UNBOUNDED, ElementType, Shape, tuple_shape
from hlomem.hlo.shape_inference.elements import (
    Case,
    compatible,
    dynamic_flags,
    higher_precision,
    is_dynamic,
    is_scalar,
    make_shape,
    require,
    require_arrays,
    require_distinct,
    resized,
    retyped,
    same_dimensions,
    same_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.text.attributes import ProgramShape
    from hlomem.hlo.window import Window, WindowDimension

_INT32_MAX = 2**31 - 1


def infer_broadcast(case: Case) -> Shape:
    """The sizes that `dimensions` lists, then those of the operand.

    XLA's parser hands the dimensions to the rule of `xla::Broadcast`, where they are sizes: of a
    scalar without any this is the scalar, and of others most often not what was meant.
    """
    [operand] = case.operands
    require_arrays(operand)
    sizes = case.integers("dimensions")
    require(UNBOUNDED not in (*operand.dimensions, *sizes))
    flags = [False] * len(sizes) + dynamic_flags(operand)
    return make_shape(operand.element_type, (*sizes, *operand.dimensions), flags)


def infer_concatenate(case: Case) -> Shape:
    """The sizes along one dimension added up, the others as all operands have them."""
    require(bool(case.operands))
    first, [joined] = case.operands[0], case.integers("dimensions")
    require_arrays(*case.operands)
    require_distinct([joined], first.rank)
    kind = first.element_type
    for shape in case.operands:
        require(first.rank == shape.rank, same_type(first, shape))
        kind = higher_precision(Shape(kind), shape)
    sizes: list[int] = []
    flags: list[bool] = []
    for number in range(first.rank):
        column = [(shape.dimensions[number], is_dynamic(shape, number)) for shape in case.operands]
        known = [size for size, _ in column if size != UNBOUNDED]
        is_open = len(known) < len(column) if number == joined else not known
        require(number == joined or len(set(known)) <= 1)
        total = sum(known) if number == joined else known[0] if known else UNBOUNDED
        sizes.append(UNBOUNDED if is_open else total)
        # A `?` that a known size replaces leaves nothing dynamic.
        flags.append(any(flag for size, flag in column if is_open or size != UNBOUNDED))
    return make_shape(kind, sizes, flags)


def infer_pad(case: Case) -> Shape:
    """Each size with what is put before, after and between elements."""
    operand, value = case.operands
    padding = case.values["padding"]
    assert isinstance(padding, tuple)
    require_arrays(operand)
    require(is_scalar(value), same_type(operand, value), operand.rank == len(padding))
    sizes: list[int] = []
    for size, (low, high, interior) in zip(operand.dimensions, padding, strict=True):
        padded = size + low + high + max(size - 1, 0) * interior
        require(interior >= 0, size == UNBOUNDED or padded >= 0)
        sizes.append(size if size == UNBOUNDED else padded)
    return make_shape(higher_precision(operand, value), sizes, dynamic_flags(operand))


def infer_transpose(case: Case) -> Shape:
    """The dimensions in another order, in the layout that moves no element."""
    [operand] = case.operands
    require_arrays(operand)
    order = case.integers("dimensions")
    require(sorted(order) == list(range(operand.rank)))
    flags = dynamic_flags(operand)
    moved = resized(operand, [operand.dimensions[at] for at in order], [flags[at] for at in order])
    if operand.layout is None:
        return moved
    minor = tuple([order.index(at) for at in operand.layout.minor_to_major])
    return moved.with_layout(operand.layout._replace(minor_to_major=minor))


def infer_reverse(case: Case) -> Shape:
    """The shape of the operand."""
    [operand] = case.operands
    require_arrays(operand)
    require_distinct(case.integers("dimensions"), operand.rank)
    return operand


def infer_sort(case: Case) -> Shape:
    """The shape of the operand, or a tuple of those of several."""
    require(*[same_dimensions(case.operands[0], shape) for shape in case.operands])
    return case.operands[0] if len(case.operands) == 1 else tuple_shape(case.operands)


def infer_top_k(case: Case) -> Shape:
    """The first k of the last dimension, and their indices."""
    [operand] = case.operands
    require_arrays(operand)
    k = case.integer("k")
    require(operand.rank > 0 and 0 <= k <= operand.dimensions[-1])
    flags = [*dynamic_flags(operand)[:-1], False]
    found = make_shape(operand.element_type, (*operand.dimensions[:-1], k), flags)
    return tuple_shape((found, retyped(found, ElementType.S32)))


def infer_dimension_size(case: Case) -> Shape:
    """`s32[]`."""
    _sized_dimension(case)
    return make_shape(ElementType.S32, ())


def infer_sized(case: Case) -> Shape:
    """The operand, with a dimension that is dynamic now."""
    number = _sized_dimension(case)
    operand, size = case.operands
    require(is_scalar(size), size.element_type is ElementType.S32)
    flags = dynamic_flags(operand)
    flags[number] = True
    return resized(operand, operand.dimensions, flags)


def _sized_dimension(case: Case) -> int:
    [number] = case.integers("dimensions")
    shape = case.operands[0]
    require_distinct([number], shape.rank)
    require(shape.dimensions[number] <= _INT32_MAX)
    return number


def infer_reduce(case: Case) -> Shape:
    """The dimensions that are not reduced, for each result of the reducer."""
    count = len(case.operands) // 2
    require(count > 0)
    arrays, values = case.operands[:count], case.operands[count:]
    first, numbers = arrays[0], case.integers("dimensions")
    require(*[same_dimensions(first, shape) for shape in arrays])
    require_distinct(numbers, first.rank)
    [reducer] = case.callees
    check_reducer(reducer, values, [shape.element_type for shape in arrays])
    left = [at for at in range(first.rank) if at not in numbers]
    sizes, flags = [first.dimensions[at] for at in left], [is_dynamic(first, at) for at in left]
    results = reducer.result.elements if reducer.result.is_tuple else (reducer.result,)
    shapes = [make_shape(result.element_type, sizes, flags) for result in results]
    return tuple_shape(shapes) if reducer.result.is_tuple else shapes[0]


def check_reducer(
    reducer: ProgramShape, values: Sequence[Shape], kinds: Sequence[ElementType]
) -> None:
    """Raise unless a computation reduces arrays of some types (`VerifyReducerShape`)."""
    count, (parameters, result) = len(kinds), reducer
    results = result.elements if result.is_tuple else (result,)
    require(len(parameters) == 2 * count, len(results) == count, *map(is_scalar, results))
    for number, result_part in enumerate(results):
        element, after = Shape(kinds[number]), parameters[count + number]
        pairs = (result_part, values[number]), (element, after), (result_part, after)
        require(compatible(result_part, parameters[number]))
        require(*[compatible(*pair, precision=False) for pair in pairs])


def infer_reduce_window(case: Case) -> Shape:
    """The positions of a window; only the first operand counts, as in XLA's parser."""
    require(len(case.operands) >= 2)
    operand, value = case.operands[:2]
    [reducer] = case.callees
    check_reducer(reducer, [value], [operand.element_type])
    require_arrays(operand)
    return windowed(operand, window_of(case), value.element_type)


def infer_select_and_scatter(case: Case) -> Shape:
    """The shape of the operand."""
    operand, source, value = case.operands
    require_arrays(operand)
    select, scatter = case.callees
    element = Shape(operand.element_type)
    require(len(select.parameters) == 2, compatible(select.result, Shape(ElementType.PRED)))
    require(*[compatible(element, parameter, precision=False) for parameter in select.parameters])
    check_reducer(scatter, [value], [source.element_type])
    positions = windowed(operand, window_of(case), operand.element_type)
    require(compatible(source, positions, precision=False))
    return operand


def window_of(case: Case) -> Window:
    """The window of an instruction, which has no dimensions where it is not given."""
    window = case.values.get("window", ())
    assert isinstance(window, tuple)
    return window


def windowed(base: Shape, window: Window, kind: ElementType) -> Shape:
    """The positions of a window over an array (`InferWindowOutputShape`)."""
    require(len(window) == base.rank)
    sizes = [
        _positions(size, dimension) for size, dimension in zip(base.dimensions, window, strict=True)
    ]
    return make_shape(kind, sizes, dynamic_flags(base))


def _positions(size: int, window: WindowDimension) -> int:
    """`window_util::DilatedBound` and `StridedBound`."""
    require(min(window.size, window.stride, window.base_dilation, window.window_dilation) > 0)
    if size == UNBOUNDED:
        return size
    dilated = (size - 1) * window.base_dilation + 1 if size else 0
    padded = window.padding_low + dilated + window.padding_high
    width = (window.size - 1) * window.window_dilation + 1
    return 0 if padded == 0 or width > padded else (padded - width) // window.stride + 1
