"""Shapes of operations on one element at a time.

Mirrors `InferUnaryOpShape`, `InferBinaryOpShape`, `InferElementwiseBinaryOpShape`,
`InferDegenerateDimensionBroadcastShape`, `InferClampShape` and `InferSelectShape`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import UNBOUNDED, ElementType, Shape
from hlomem.hlo.shape_inference.elements import (
    Case,
    compatible,
    component_of,
    dynamic_flags,
    higher_precision,
    is_complex,
    is_dynamic,
    is_floating,
    is_integral,
    is_scalar,
    is_signed,
    make_shape,
    require,
    require_arrays,
    resized,
    retyped,
    same_dimensions,
    same_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE_OF = {ElementType.F32: ElementType.C64, ElementType.F64: ElementType.C128}


def infer_token(_: Case) -> Shape:
    """`token[]`."""
    return Shape(ElementType.TOKEN)


def infer_device(_: Case) -> Shape:
    """The number of a device."""
    return make_shape(ElementType.U32, ())


def _unary(*kinds: Callable[[ElementType], bool]) -> Callable[[Case], Shape]:
    """The rule of operations whose result is like their operand, which has one of some types."""

    def infer(case: Case) -> Shape:
        [shape] = case.operands
        require_arrays(shape)
        require(any(is_kind(shape.element_type) for is_kind in kinds))
        return shape

    return infer


def _is_pred(kind: ElementType) -> bool:
    return kind is ElementType.PRED


infer_floating = _unary(is_floating)
infer_transcendental = _unary(is_floating, is_complex)
infer_integral = _unary(is_integral)
infer_negate = _unary(is_integral, is_floating, is_complex)
infer_not = _unary(_is_pred, is_integral)
infer_sign = _unary(is_signed, is_complex)


def infer_component(case: Case) -> Shape:
    """`real` and `imag`: of complex numbers a part, of others all."""
    return _real_part(infer_transcendental(case))


def infer_abs(case: Case) -> Shape:
    """Of complex numbers a real one."""
    return _real_part(infer_sign(case))


def _real_part(shape: Shape) -> Shape:
    kind = shape.element_type
    return retyped(shape, component_of(kind)) if is_complex(kind) else shape


def infer_is_finite(case: Case) -> Shape:
    """A truth value for each number."""
    return retyped(infer_floating(case), ElementType.PRED)


def infer_binary(case: Case) -> Shape:
    """Arithmetic on any two arrays whose sizes agree."""
    one, two = case.operands
    require_arrays(one, two)
    require(same_type(one, two))
    is_bounded = UNBOUNDED not in one.dimensions + two.dimensions
    if is_bounded and same_dimensions(one, two):
        shape = retyped(one, higher_precision(one, two))
        either = map(bool.__or__, dynamic_flags(one), dynamic_flags(two))
        return resized(shape, one.dimensions, list(either))
    if one.rank == two.rank:
        return _stretched(one, two)
    require(is_scalar(one) or is_scalar(two))  # which is broadcast
    larger = one if one.rank > two.rank else two
    return make_shape(higher_precision(one, two), larger.dimensions, dynamic_flags(larger))


def _stretched(one: Shape, two: Shape) -> Shape:
    """Sizes of 1 are stretched to those of the other array."""
    sizes: list[int] = []
    flags: list[bool] = []
    for number, (left, right) in enumerate(zip(one.dimensions, two.dimensions, strict=True)):
        of_left, of_right = is_dynamic(one, number), is_dynamic(two, number)
        if left == right and left != 1:
            size, flag = left, of_left or of_right
        elif left == 1 or (left == UNBOUNDED and right != 1):
            size, flag = right, of_right
        else:
            require(right in (1, UNBOUNDED))
            size, flag = left, of_left
        sizes.append(size)
        flags.append(flag)
    return make_shape(higher_precision(one, two), sizes, flags)


def infer_arithmetic(case: Case) -> Shape:
    """Arithmetic that truth values have not."""
    require(*[not _is_pred(shape.element_type) for shape in case.operands])
    return infer_binary(case)


def infer_atan2(case: Case) -> Shape:
    """The same, of floating-point or complex numbers."""
    kind = case.operands[0].element_type
    require(is_floating(kind) or is_complex(kind))
    return infer_arithmetic(case)


def infer_logical(case: Case) -> Shape:
    """Bits of integers, or truth values."""
    kind = case.operands[0].element_type
    require(_is_pred(kind) or is_integral(kind))
    return infer_binary(case)


def infer_compare(case: Case) -> Shape:
    """A truth value for each pair."""
    return retyped(infer_binary(case), ElementType.PRED)


def infer_complex(case: Case) -> Shape:
    """Complex numbers of two real ones."""
    one, two = [shape.element_type for shape in case.operands]
    require(one is two, one in _WHOLE_OF)
    return retyped(infer_binary(case), _WHOLE_OF[one])


def infer_clamp(case: Case) -> Shape:
    """The shape of what is clamped, between scalars or arrays like it."""
    low, middle, high = case.operands
    require_arrays(low, middle, high)
    for bound in (low, high):
        fits = is_scalar(bound) or compatible(bound, middle, precision=False)
        require(same_type(bound, middle), fits)
    return middle


def infer_select(case: Case) -> Shape:
    """The shape of both choices, or of the condition where that is no scalar."""
    condition, one, two = case.operands
    require_arrays(condition, one, two)
    fits = is_scalar(condition) or same_dimensions(condition, one)
    require(compatible(one, two, precision=False), _is_pred(condition.element_type), fits)
    whole = one if is_scalar(condition) else condition
    sizes = [max(sides) for sides in zip(one.dimensions, two.dimensions, strict=True)]
    flags = [
        is_dynamic(one, number) and is_dynamic(two, number)
        if UNBOUNDED in (one.dimensions[number], two.dimensions[number])
        else any(is_dynamic(shape, number) for shape in (one, two, whole))
        for number in range(whole.rank)
    ]
    result = resized(retyped(whole, higher_precision(one, two)), sizes, flags)
    if result.layout is None or one.layout is None:
        return result
    bits = one.layout.element_size_in_bits
    return result.with_layout(result.layout._replace(element_size_in_bits=bits))
