"""The time of gathers and scatters beyond the bytes they need, in bytes.

A scatter adds row by row to places in the cache, a number at a time. What one takes depends on how
its numbers come together: stored, where no two meet or the last wins; by an instruction of the
memory; compared and swapped until that worked. However wide the device, what is added to one place
is added one after another: of indices no more is known than how many there are for each place.
A gather reads a row as often as it is asked for, of the cache where its table lies there.
"""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.orders.speeds import Speeds

_NARROW = frozenset({"bf16", "f16"})
_INSTRUCTIONS = frozenset({"add", "and", "maximum", "minimum", "or", "xor"})
"""Combinations that the memory does itself (`transforms/lower_tensors.cc` of XLA's emitters)."""


class Meeting(Enum):
    """How a number comes to another of the same index."""

    STORED = "stored"
    ADDED = "added"
    SWAPPED = "swapped"


def meeting(scatter: HloInstruction) -> Meeting:
    """How a scatter's updates come to what is there."""
    if scatter.attributes.get("unique_indices") == "true":
        return Meeting.STORED
    [combiner] = scatter.called_computations
    root = combiner.root
    while root.opcode in ("bitcast", "convert", "copy"):
        root = root.operands[0]
    if root.opcode == "parameter":
        return Meeting.STORED
    is_narrow = scatter.operands[-1].shape.element_type.text in _NARROW
    is_known = root.opcode in _INSTRUCTIONS and not is_narrow
    return Meeting.ADDED if is_known else Meeting.SWAPPED


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
        return max(rows, self._one_by_one(scatter, how, self._speeds))

    def _rows(self, scatter: HloInstruction, shape: Shape, how: Meeting, speeds: Speeds) -> int:
        """Of rows next to each other, each at least the bytes that are moved together."""
        size, row = self._size_of(shape), _window(scatter, shape)
        rows = prod(shape.dimensions) // row
        return max(round(size * _factor(shape, how, speeds)), rows * speeds.indexing.sector)

    def _one_by_one(self, scatter: HloInstruction, how: Meeting, speeds: Speeds) -> int:
        """Of the updates of one target, one after another."""
        if how is Meeting.STORED:
            return 0
        places = max(prod(scatter.operands[0].shape.dimensions), 1)
        depth = prod(scatter.operands[-1].shape.dimensions) / places
        is_swapped = how is Meeting.SWAPPED
        seconds = speeds.indexing.swap if is_swapped else speeds.indexing.addition
        return speeds.in_bytes(depth * seconds)

    def read_again(self, gather: HloInstruction, count: int, counted: int) -> int:
        """The bytes of so many elements of a gather, beyond those that are counted."""
        speeds = self._speeds
        if speeds is None:
            return 0
        table = gather.operands[0].shape
        whole = self._size_of(table)
        width = max(whole // max(prod(table.dimensions), 1), 1)
        row = max(prod(gather.integers("slice_sizes")), 1)
        read = max(count * width, -(-count // row) * speeds.indexing.sector)
        is_cached = whole <= speeds.indexing.cache
        share = speeds.indexing.cached if is_cached else speeds.indexing.uncached
        return round(max(read - counted, 0) * share)


def _window(scatter: HloInstruction, updates: Shape) -> int:
    """Numbers of an update that go to one index."""
    dimensions = scatter.integers("update_window_dims")
    return max(prod(updates.dimensions[dimension] for dimension in dimensions), 1)


def _factor(updates: Shape, how: Meeting, speeds: Speeds) -> float:
    """How much longer a byte takes that comes to another."""
    if how is Meeting.STORED:
        return 1.0
    if how is Meeting.ADDED:
        return speeds.indexing.added
    is_narrow = updates.element_type.text in _NARROW
    return speeds.indexing.narrow_swapped if is_narrow else speeds.indexing.swapped
