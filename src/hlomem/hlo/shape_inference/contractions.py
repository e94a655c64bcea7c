"""Shapes of products, convolutions, normalizations, transforms and solvers.

Mirrors `InferDotOpShape`, `InferRaggedDotOpShape`, `InferConvolveShape` (forward, as XLA's parser
asks it), `InferBatchNormTrainingShape`, `InferBatchNormInferenceShape`, `InferBatchNormGradShape`,
`InferFftShape`, `InferTriangularSolveShape` and `InferCholeskyShape`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import UNBOUNDED, ElementType, Shape, tuple_shape
from hlomem.hlo.shape_inference.dimensions import window_of, windowed
from hlomem.hlo.shape_inference.elements import (
    Case,
    compatible,
    component_of,
    dynamic_flags,
    higher_precision,
    is_complex,
    is_dynamic,
    is_floating,
    make_shape,
    require,
    require_arrays,
    require_distinct,
    resized,
    retyped,
    same_type,
    sizes_fit,
)
from hlomem.hlo.window import ConvolutionLabels

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_FFT_RANK = 3


def infer_dot(case: Case) -> Shape:
    """Batch dimensions, then what is left of the left side, then of the right.

    Of a scaled product the second and fourth operands are scales.
    """
    lhs, rhs = case.operands[:: 2 if case.opcode == "scaled-dot" else 1][:2]
    _check_dot(case, lhs, rhs)
    sizes, flags = _dot_dimensions(case, lhs, rhs)
    return make_shape(higher_precision(lhs, rhs), sizes, flags)


def _check_dot(case: Case, lhs: Shape, rhs: Shape) -> None:
    """`ValidateDotDimensionNumbers` and `CheckDotDimensionConstraints`."""
    require_arrays(lhs, rhs)
    for side, shape in (("lhs", lhs), ("rhs", rhs)):
        numbers = case.integers(f"{side}_contracting_dims", f"{side}_batch_dims")
        require_distinct(numbers, shape.rank)
    for role in ("contracting", "batch"):
        left, right = case.integers(f"lhs_{role}_dims"), case.integers(f"rhs_{role}_dims")
        require(len(left) == len(right))
        for one, two in zip(left, right, strict=True):
            require(sizes_fit(lhs.dimensions[one], rhs.dimensions[two]))


def _dot_dimensions(
    case: Case, lhs: Shape, rhs: Shape, groups: Sequence[int] = ()
) -> tuple[list[int], list[bool]]:
    """`GenerateDotResultDimensions`."""
    batch = case.integers("lhs_batch_dims")
    of_lhs = case.integers("lhs_contracting_dims", "lhs_batch_dims")
    of_rhs = (*case.integers("rhs_contracting_dims", "rhs_batch_dims"), *groups)
    left = [*batch, *[at for at in range(lhs.rank) if at not in of_lhs]]
    right = [at for at in range(rhs.rank) if at not in of_rhs]
    parts = [(lhs, at) for at in left] + [(rhs, at) for at in right]
    sizes = [shape.dimensions[at] for shape, at in parts]
    return sizes, [is_dynamic(shape, at) for shape, at in parts]


def infer_ragged_dot(case: Case) -> Shape:
    """A product of groups, which come first where the dimension they divide is contracted."""
    lhs, rhs, group_sizes = case.operands
    _check_dot(case, lhs, rhs)
    require_arrays(group_sizes)
    ragged, groups = case.integers("lhs_ragged_dims"), case.integers("rhs_group_dims")
    require(len(ragged) == 1)
    require_distinct(ragged, lhs.rank)
    _check_group_sizes(case, lhs, ragged[0], group_sizes)
    count, contracting = group_sizes.dimensions[-1], case.integers("lhs_contracting_dims")
    is_inner = ragged[0] in case.integers("lhs_contracting_dims", "lhs_batch_dims")
    require(len(groups) == (0 if is_inner else 1))
    require_distinct((*groups, *case.integers("rhs_contracting_dims", "rhs_batch_dims")), rhs.rank)
    require(*[sizes_fit(rhs.dimensions[at], count) for at in groups])
    sizes, flags = _dot_dimensions(case, lhs, rhs, groups)
    if ragged[0] in contracting:
        sizes, flags = [count, *sizes], [dynamic_flags(group_sizes)[-1], *flags]
    return make_shape(higher_precision(lhs, rhs), sizes, flags)


def _check_group_sizes(case: Case, lhs: Shape, ragged: int, group_sizes: Shape) -> None:
    """One size for each group, alone or for all dimensions before the ragged one."""
    batch, contracting = case.integers("lhs_batch_dims"), case.integers("lhs_contracting_dims")
    free = tuple([at for at in range(lhs.rank) if at not in (*batch, *contracting)])
    others = contracting if ragged in contracting else free
    order = batch if ragged in batch else batch + others
    expected = [lhs.dimensions[at] for at in order[: order.index(ragged)]]
    require(group_sizes.rank == 1 or list(group_sizes.dimensions[:-1]) == expected)
    require(group_sizes.rank > 0)


def infer_convolution(case: Case) -> Shape:
    """The positions of the window in the spatial dimensions, batches and output features."""
    require(len(case.operands) > 1)
    lhs, rhs = case.operands[:2]
    require_arrays(lhs, rhs)
    labels, window = case.values["dim_labels"], window_of(case)
    assert isinstance(labels, ConvolutionLabels)
    rank = len(labels.input_spatial_dimensions) + 2
    require(len(window) == rank - 2, lhs.rank == rhs.rank == rank)
    for first, second, spatial in (labels[:3], labels[3:6], labels[6:]):
        require(sorted((first, second, *spatial)) == list(range(rank)))
    features = case.integer("feature_group_count", 1)
    batches = case.integer("batch_group_count", 1)
    block = case.values.get("sparsity_config", 1)  # of which one element is there
    assert isinstance(block, int)
    _check_groups(lhs, rhs, labels, features, batches, block)
    require(
        [rhs.dimensions[at] for at in labels.kernel_spatial_dimensions]
        == [dimension.size for dimension in window]
    )
    spatial_sizes = [lhs.dimensions[at] for at in labels.input_spatial_dimensions]
    base = make_shape(lhs.element_type, spatial_sizes, [size < 0 for size in spatial_sizes])
    positions = windowed(base, window, lhs.element_type)
    sizes, flags = [0] * rank, [False] * rank
    sizes[labels.output_batch_dimension] = lhs.dimensions[labels.input_batch_dimension] // batches
    sizes[labels.output_feature_dimension] = rhs.dimensions[labels.kernel_output_feature_dimension]
    flags[labels.output_batch_dimension] = is_dynamic(lhs, labels.input_batch_dimension)
    require(not is_dynamic(rhs, labels.kernel_output_feature_dimension))
    for number, at in enumerate(labels.output_spatial_dimensions):
        sizes[at] = positions.dimensions[number]
        flags[at] = is_dynamic(lhs, labels.input_spatial_dimensions[number])
        flags[at] |= is_dynamic(rhs, labels.kernel_spatial_dimensions[number])
    return make_shape(higher_precision(lhs, rhs), sizes, flags)


def _check_groups(
    lhs: Shape, rhs: Shape, labels: ConvolutionLabels, features: int, batches: int, block: int
) -> None:
    require(features > 0, batches > 0, 1 in (features, batches))
    inputs, batch = (
        lhs.dimensions[labels.input_feature_dimension],
        lhs.dimensions[labels.input_batch_dimension],
    )
    outputs = rhs.dimensions[labels.kernel_output_feature_dimension]
    taken = rhs.dimensions[labels.kernel_input_feature_dimension] * block
    require(outputs % batches == outputs % features == batch % batches == inputs % features == 0)
    require(inputs // features == taken)


def infer_normalization(case: Case) -> Shape:
    """The shape of the operand; in training and gradients a tuple with two vectors of features."""
    operand, *others = case.operands
    require_arrays(operand)
    number = case.integer("feature_index")
    require_distinct([number], operand.rank)
    require(is_floating(operand.element_type))
    size = operand.dimensions[number]
    vectors = others[:-1] if case.opcode == "batch-norm-grad" else others
    for vector in vectors:
        require(same_type(operand, vector), vector.rank == 1)
        require(sizes_fit(vector.dimensions[0], size))
    if case.opcode == "batch-norm-inference":
        return operand
    require(len(vectors) == len(others) or compatible(operand, others[-1], precision=False))
    feature = make_shape(operand.element_type, (size,), (is_dynamic(operand, number),))
    return tuple_shape((operand, feature, feature))


def infer_fft(case: Case) -> Shape:
    """The operand, with half of its last dimension where the other half follows from it."""
    [operand] = case.operands
    kind, length = case.values["fft_type"], case.integers("fft_length")
    require(1 <= len(length) <= min(_MAX_FFT_RANK, operand.rank))
    is_real = operand.element_type in (ElementType.F32, ElementType.F64)
    require(is_real if kind == "RFFT" else is_complex(operand.element_type))
    if kind in ("FFT", "IFFT"):
        return operand
    last = operand.dimensions[-len(length) :]
    half = length[-1] // 2 + 1 if length[-1] else 0
    expected = (*length[:-1], half) if kind == "IRFFT" else length
    require(*[size in (want, UNBOUNDED) for size, want in zip(last, expected, strict=True)])
    flags = dynamic_flags(operand)
    flags[-1] = flags[-1] and operand.dimensions[-1] != UNBOUNDED
    whole = length[-1] if kind == "IRFFT" else half
    result = resized(operand, (*operand.dimensions[:-1], whole), flags)
    if kind == "IRFFT":
        return retyped(result, component_of(operand.element_type))
    is_short = operand.element_type is ElementType.F32
    return retyped(result, ElementType.C64 if is_short else ElementType.C128)


def infer_cholesky(case: Case) -> Shape:
    """The shape of the operand."""
    [operand] = case.operands
    _check_square(operand)
    return operand


def _check_square(shape: Shape) -> None:
    kind = shape.element_type
    require(is_floating(kind) or is_complex(kind), shape.rank > 1)
    require(sizes_fit(*shape.dimensions[-2:]))


def infer_triangular_solve(case: Case) -> Shape:
    """The shape of the right-hand side."""
    matrix, right = case.operands
    _check_square(matrix)
    side = 2 if case.values.get("left_side") else 1
    require(matrix.element_type is right.element_type, matrix.rank == right.rank)
    require(matrix.dimensions[:-2] == right.dimensions[:-2])
    require(sizes_fit(matrix.dimensions[-1], right.dimensions[-side]))
    require(case.values.get("transpose_a", "TRANSPOSE_INVALID") != "TRANSPOSE_INVALID")
    return right
