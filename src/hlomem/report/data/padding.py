"""Padding: the bytes of tiled arrays that hold no element, by shape and dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.dump.records import Record
from hlomem.hlo.padding import padded_dimensions, padded_size
from hlomem.report.data.buffers import padding_of
from hlomem.report.data.hints import Hint
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import Buffer, MemoryView, Space


_FOLDABLE = 3
"""The rank from which on folding two dimensions leaves a matrix."""
_IMAGES = 4
"""The rank of a batch of images."""


class GrownDimension(NamedTuple):
    dimension: int | None
    """None for one that only the tile has."""
    size: int
    padded_size: int

    def __str__(self) -> str:
        return f"{self.size} → {self.padded_size}"

    @property
    def words(self) -> str:
        if self.dimension is None:
            return f"a tile of {self.padded_size} for {self.size}"
        return f"dimension {self.dimension}: {self}"


class PaddedShape(Record, frozen=True, kw_only=True):
    shape: str
    size: int
    """Bytes of one buffer."""
    padding: int
    growths: tuple[GrownDimension, ...]
    """Empty if the array is rounded up as a whole."""
    count: int
    count_at_peak: int
    padding_at_peak: int
    fix: str
    """A change of the program that helps; empty if none is known."""
    example: str
    """One of the buffers, alive at the peak if possible."""
    source: str | None


class Padding(Record, frozen=True, kw_only=True):
    name: str
    space: str
    space_size: int
    peak_size: int | None
    padding_at_peak: int
    rows: tuple[PaddedShape, ...]


def build_padding(memory: MemoryView, space: Space) -> Padding:
    """The padded shapes of a space, most padding at the peak first."""
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    at_peak = {part.buffer.id for part in alive}
    groups: dict[str, list[Buffer]] = {}
    for placed in memory.joined.placed:
        value = placed.value
        if placed.allocation.color == space.color and padding_of(value.shape, value.size):
            groups.setdefault(value.shape, []).append(memory.buffer_of(placed))
    rows = [_row(members, at_peak) for members in groups.values()]
    rows.sort(key=lambda row: (-row.padding_at_peak, -row.padding, row.shape))
    return Padding(
        name=memory.dump.title,
        space=space.name,
        space_size=space.size,
        peak_size=timeline.peak.size if timeline else None,
        padding_at_peak=sum(row.padding_at_peak for row in rows),
        rows=tuple(rows),
    )


def hint_of(padding: Padding) -> Hint | None:
    if not padding.padding_at_peak:
        return None
    worst = padding.rows[0]
    grown = ", ".join(map(str, worst.growths)) or "rounded up"
    what = f"padding: first {worst.shape.partition('{')[0]}, {grown}"
    return Hint(size=padding.padding_at_peak, what=what, command="padding")


def growths(shape_text: str, size: int) -> tuple[GrownDimension, ...]:
    shape = parse_shape_or_none(shape_text)
    if shape is None or not shape.is_array or padded_size(shape) != size:
        return ()
    return tuple(
        GrownDimension(dimension.dimension, dimension.size, dimension.padded_size)
        for dimension in padded_dimensions(shape)
        if dimension.padded_size != dimension.size
    )


def _row(members: list[Buffer], at_peak: set[ValueId]) -> PaddedShape:
    alive = [buffer for buffer in members if buffer.id in at_peak]
    example = (alive or members)[0]
    return PaddedShape(
        shape=example.shape,
        size=example.size,
        padding=example.padding,
        growths=growths(example.shape, example.size),
        count=len(members),
        count_at_peak=len(alive),
        padding_at_peak=sum(buffer.padding for buffer in alive),
        fix=find_fix(example.shape, example.op_name),
        example=example.name,
        source=example.source,
    )


def find_fix(shape_text: str, operation: str | None = None) -> str:
    """A change, best a folding, that makes the minor dimension fill the lanes of a tile; or ""."""
    shape = parse_shape_or_none(shape_text)
    if shape is None or not shape.is_array or shape.layout is None or not shape.dimensions:
        return ""
    grown = {
        dimension.dimension: dimension
        for dimension in padded_dimensions(shape)
        if dimension.dimension is not None and dimension.padded_size != dimension.size
    }
    minor = shape.layout.minor_to_major[0]
    worst = max(
        grown.values(), key=lambda dimension: dimension.padded_size / dimension.size, default=None
    )
    if worst is None or worst.dimension is None:
        return ""
    if worst.dimension != minor or len(shape.dimensions) < _FOLDABLE:
        return f"dimension {worst.dimension}: {worst.padded_size} instead of {worst.size}"
    lanes = worst.padded_size
    if "conv" in (operation or "") and len(shape.dimensions) == _IMAGES and lanes % worst.size == 0:
        return _fold_pixels(worst.size, lanes)
    return _fold_minor(shape.dimensions, minor, lanes)


def _fold_pixels(channels: int, lanes: int) -> str:
    side = max(2, round((lanes / channels) ** 0.5))
    blocks = f"b, h // {side}, {side}, w // {side}, {side}, c"
    folded = f"b, h // {side}, w // {side}, {side * side} * c"
    return (
        f"{lanes} channels instead of {channels}, or blocks of {side} × {side} pixels as channels:"
        f" x.reshape({blocks}).swapaxes(2, 3).reshape({folded})"
    )


def _fold_minor(dimensions: Sequence[int], minor: int, lanes: int) -> str:
    """Fold the minor dimension with the one before it, or change its size."""
    size = dimensions[minor]
    other = f"{lanes} instead of {size} in dimension {minor}"
    if minor == 0 or dimensions[minor - 1] * size % lanes:
        return other
    folded = [*dimensions[: minor - 1], dimensions[minor - 1] * size, *dimensions[minor + 1 :]]
    text = ", ".join(map(str, folded))
    return f"fold dimensions {minor - 1} and {minor}: x.reshape({text}); or {other}"
