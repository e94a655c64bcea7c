"""Shapes of gathers and scatters.

Mirrors `InferGatherShape`, `InferScatterShape` and the checks of their dimension numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import UNBOUNDED, Shape, tuple_shape
from hlomem.hlo.shape_inference.dimensions import check_reducer
from hlomem.hlo.shape_inference.elements import (
    Case,
    dynamic_flags,
    is_dynamic,
    is_integral,
    make_shape,
    require,
    require_arrays,
    require_distinct,
    sizes_fit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def infer_gather(case: Case) -> Shape:
    """Windows of the operand at `offset_dims`, the dimensions of the indices between them."""
    operand, starts = case.operands
    require_arrays(operand)
    sizes, flags = _expanded_indices(case, starts)
    offsets, slices = case.integers("offset_dims"), case.integers("slice_sizes")
    dropped = case.integers("collapsed_slice_dims", "operand_batching_dims")
    _check_ascending(case, "offset_dims", len(offsets) + len(sizes) - 1)
    _check_ascending(case, "collapsed_slice_dims", operand.rank)
    _check_indices(case, operand, sizes, "start_index_map", "operand", "start_indices")
    require(len(slices) == operand.rank == len(offsets) + len(dropped))
    for size, whole in zip(slices, operand.dimensions, strict=True):
        require(whole == UNBOUNDED or 0 <= size <= whole)
    require(all(slices[at] <= 1 for at in dropped))
    found = [
        (slices[at], slices[at] == operand.dimensions[at] and is_dynamic(operand, at))
        for at in range(operand.rank)
        if at not in dropped
    ]
    vector = case.integer("index_vector_dim")
    taken = [(sizes[at], flags[at]) for at in range(len(sizes)) if at != vector]
    merged = [(found if at in offsets else taken).pop(0) for at in range(len(found + taken))]
    return make_shape(
        operand.element_type, [size for size, _ in merged], [flag for _, flag in merged]
    )


def _expanded_indices(case: Case, indices: Shape) -> tuple[list[int], list[bool]]:
    """Sizes of the indices, with one of 1 where each is a number and no vector."""
    require_arrays(indices)
    vector = case.integer("index_vector_dim")
    require(is_integral(indices.element_type), 0 <= vector <= indices.rank)
    more = [1] if vector == indices.rank else []
    return [*indices.dimensions, *more], [*dynamic_flags(indices), *[False for _ in more]]


def _check_ascending(case: Case, name: str, limit: int) -> None:
    """Raise unless dimensions are listed in order, each once, and are there."""
    numbers = case.integers(name)
    require_distinct(numbers, limit)
    require(list(numbers) == sorted(numbers))


def _check_indices(
    case: Case, operand: Shape, indices: Sequence[int], name: str, batched: str, by: str
) -> None:
    """Check the index vectors, and the batch dimensions of operand and indices."""
    numbers, pairs = case.integers(name), (f"{batched}_batching_dims", f"{by}_batching_dims")
    _check_ascending(case, pairs[0], operand.rank)
    require_distinct(numbers, operand.rank)
    require_distinct(case.integers(pairs[1]), len(indices))
    require(sizes_fit(len(numbers), indices[case.integer("index_vector_dim")]))
    require(len(case.integers(pairs[0])) == len(case.integers(pairs[1])))


def infer_scatter(case: Case) -> Shape:
    """The operands."""
    count = len(case.operands) // 2
    require(len(case.operands) == 2 * count + 1 > 1)
    operands, updates = case.operands[:count], case.operands[count + 1 :]
    indices, _ = _expanded_indices(case, case.operands[count])
    for operand, update in zip(operands, updates, strict=True):
        _check_update(case, operand, indices, update)
    [combiner] = case.callees
    elements = [Shape(operand.element_type) for operand in operands]
    check_reducer(combiner, elements, [update.element_type for update in updates])
    return operands[0] if count == 1 else tuple_shape(operands)


def _check_update(case: Case, operand: Shape, indices: Sequence[int], update: Shape) -> None:
    """An update is no larger than the operand, and there is one for each index."""
    require_arrays(operand, update)
    _check_ascending(case, "update_window_dims", update.rank)
    _check_ascending(case, "inserted_window_dims", operand.rank)
    name = "scatter_dims_to_operand_dims"
    _check_indices(case, operand, indices, name, "input", "scatter_indices")
    windows = case.integers("update_window_dims")
    dropped = case.integers("inserted_window_dims", "input_batching_dims")
    require(len(windows) + len(dropped) == operand.rank)
    require(update.rank == len(indices) - 1 + len(windows))
    limits = [size for at, size in enumerate(operand.dimensions) if at not in dropped]
    require(*[update.dimensions[at] <= most for at, most in zip(windows, limits, strict=False)])
    vector = case.integer("index_vector_dim")
    wanted = [size for at, size in enumerate(indices) if at != vector]
    given = [size for at, size in enumerate(update.dimensions) if at not in windows]
    require(*map(sizes_fit, given, wanted))
