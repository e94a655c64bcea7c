"""The time of gathers and scatters beyond the bytes they need, in bytes.

A scatter adds row by row to places in the cache, a number at a time. What one takes depends on how
its numbers come together: stored, where no two meet or the last wins, or neighbours are summed
first; by an instruction of the memory; by one for integers, chosen by sign; compared and swapped
until that worked. However wide the device, what is added to one place is added one after another,
and of those that swap at once all but one try again: of indices no more is known than how many
there are for each place. A gather reads a row as often as it is asked for, of the cache as far as
its table lies there.
"""

from __future__ import annotations

from enum import Enum
from math import prod, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.orders.speeds import Speeds

_NARROW = frozenset({"bf16", "f16"})
_FLOATS = frozenset({"f32", "f64"})
_APART = ("unique_indices", "indices_are_sorted")
"""Attributes that say that no two meet in memory: what is sorted is summed before."""
_INSTRUCTIONS = frozenset({"add", "and", "maximum", "minimum", "or", "xor"})
"""Combinations that the memory does itself (`transforms/lower_tensors.cc` of XLA's emitters)."""


class Meeting(Enum):
    """How a number comes to another of the same index."""

    STORED = "stored"
    ADDED = "added"
    ORDERED = "ordered"
    SWAPPED = "swapped"


def meeting(scatter: HloInstruction) -> Meeting:
    """How a scatter's updates come to what is there."""
    if any(scatter.attributes.get(told) == "true" for told in _APART):
        return Meeting.STORED
    [combiner] = scatter.called_computations
    root = combiner.root
    while root.opcode in ("bitcast", "convert", "copy"):
        root = root.operands[0]
    if root.opcode == "parameter":
        return Meeting.STORED
    kind = scatter.operands[-1].shape.element_type.text
    if root.opcode not in _INSTRUCTIONS or kind in _NARROW:
        return Meeting.SWAPPED
    is_ordered = root.opcode in ("maximum", "minimum") and kind in _FLOATS
    return Meeting.ORDERED if is_ordered else Meeting.ADDED


class Indexing:
    """Bytes of gathers and scatters; without speeds, those of what they read and write."""

    def __init__(self, size_of: Callable[[Shape], int], speeds: Speeds | None) -> None:
        self._size_of = size_of
        self._speeds = speeds

    def written(self, scatter: HloInstruction) -> int:
        """The bytes that writing its updates takes as long as."""
        count = (len(scatter.operands) - 1) // 2
        updates = [operand.shape for operand in scatter.operands[count + 1 :]]
        if self._speeds is None:
            return sum(map(self._size_of, updates))
        how = meeting(scatter)
        rows = sum(self._rows(scatter, shape, how, self._speeds) for shape in updates)
        looked_up = self._speeds.in_bytes(self._speeds.indexing.lookup)
        return looked_up + max(rows, self._one_by_one(scatter, how, self._speeds))

    def _rows(self, scatter: HloInstruction, shape: Shape, how: Meeting, speeds: Speeds) -> int:
        """Of rows next to each other, each at least the bytes that are moved together."""
        size, table = self._size_of(shape), scatter.operands[0].shape
        rows = prod(shape.dimensions) // _run(table, _window(scatter, shape))
        factor = _factor(shape, how, speeds)
        if how is not Meeting.STORED:
            factor += speeds.indexing.fetched * self._outside(table, speeds)
        return max(round(size * factor), rows * speeds.indexing.sector)

    def _outside(self, table: Shape, speeds: Speeds) -> float:
        """The share of a table that does not lie in the cache."""
        return max(1 - speeds.indexing.cache / max(self._size_of(table), 1), 0.0)

    def _one_by_one(self, scatter: HloInstruction, how: Meeting, speeds: Speeds) -> int:
        """Of the updates of one target, one after another."""
        if how is Meeting.STORED:
            return 0
        of = speeds.indexing
        places = max(prod(scatter.operands[0].shape.dimensions), 1)
        depth = prod(scatter.operands[-1].shape.dimensions) / places
        if how is not Meeting.SWAPPED:
            return speeds.in_bytes(depth * of.addition)
        crowd = max(depth / max(of.crowd, 1), 1.0)
        return speeds.in_bytes(depth * sqrt(crowd) * of.swap)

    def read_again(self, gather: HloInstruction, count: int, counted: int) -> int:
        """The bytes of so many elements of a gather, beyond those that are counted."""
        speeds = self._speeds
        if speeds is None or not speeds.indexing.cache:
            return 0
        table = gather.operands[0].shape
        whole = self._size_of(table)
        width = max(whole // max(prod(table.dimensions), 1), 1)
        row = _run(table, gather.integers("slice_sizes"))
        read = max(count * width, -(-count // row) * speeds.indexing.sector)
        # The cache holds results as well: the larger the table, the less of it is found again.
        again = round(max(read - counted, 0) * min(whole / speeds.indexing.cache, 1.0))
        return again + speeds.in_bytes(speeds.indexing.lookup)


def _window(scatter: HloInstruction, updates: Shape) -> list[int]:
    """The sizes of what goes to one index, by dimension of the table."""
    inserted = scatter.integers("inserted_window_dims")
    window = iter(scatter.integers("update_window_dims"))
    return [
        1 if number in inserted else updates.dimensions[next(window)]
        for number in range(len(scatter.operands[0].shape.dimensions))
    ]


def _run(table: Shape, window: Sequence[int]) -> int:
    """Numbers of a window that lie next to each other in its table, whose rows do."""
    found = 1
    for size, whole in zip(reversed(window), reversed(table.dimensions), strict=True):
        found *= size
        if size < whole:
            break
    return max(found, 1)


def _factor(updates: Shape, how: Meeting, speeds: Speeds) -> float:
    """How much longer a byte takes that comes to another; one stored takes as long as one added."""
    if how in (Meeting.STORED, Meeting.ADDED):
        return speeds.indexing.added
    if how is Meeting.ORDERED:
        return speeds.indexing.ordered
    is_narrow = updates.element_type.text in _NARROW
    return speeds.indexing.narrow_swapped if is_narrow else speeds.indexing.swapped
