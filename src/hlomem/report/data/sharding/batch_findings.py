"""Inputs on every device: all devices along an axis compute the same with them.

They are small next to what becomes of them, so that no rule by the size of arguments sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.report.data.sharding.argument_findings import Wish, finding_on
from hlomem.report.data.sharding.value_findings import at_peak, find_whole_along, input_axes
from hlomem.report.data.sharding.values import values_along, weight_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.sharding import Axis
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.finding import ShardingFinding
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject

    Argument = tuple[str, Buffer, Layout]

_NO_ROWS = ((), (2,), (4,))
"""Dimensions of what has no rows to split: a number, or the data of a key."""
_MUCH = 0.2
"""The share of the memory that values which are the same along the axis take, at least."""


def find_whole_batches(subject: Subject) -> Iterator[ShardingFinding]:
    """A batch that is whole along an axis, with all that is computed from it."""
    batch = _batch(subject)
    for axis in _model_axes(subject) if batch else ():
        wishes = list(_wishes(batch, axis))
        held = _held(subject, axis)
        is_much = held >= _MUCH * subject.space.size
        if wishes and is_much and not _splits_values(subject, axis):
            found = _finding(subject, wishes, axis, held, "splits the model")
            is_other = _is_of_pairs(subject, batch, axis)
            change = replace(found.change, is_of_batch=True)
            yield replace(found, change=change, is_other=is_other)
            yield from find_whole_along(subject, axis) if is_other else ()


def find_whole_inputs(subject: Subject) -> Iterator[ShardingFinding]:
    """Inputs of one length that are whole, though others are split, with what is computed."""
    taken = input_axes(subject)
    for length, group in _inputs(subject).items():
        for axis in taken:
            if any(its.sharding is None or axis in its.sharding.used for _, _, its in group):
                continue
            wishes = list(_wishes(group, axis))
            held = _held(subject, axis, length)
            if len(wishes) == len(group) and held >= _MUCH * subject.space.size:
                found = _finding(subject, wishes, axis, held, "splits other inputs")
                yield replace(found, is_other=True)  # they may be wanted whole


def _finding(
    subject: Subject, wishes: list[Wish], axis: Axis, held: int, why: str
) -> ShardingFinding:
    found = finding_on(subject, "replicated", wishes, {wish.name: wish.saves for wish in wishes})
    return replace(
        found,
        title=f"{wishes[0].name} is whole along {axis.name}, which {why}: values"
        f" of {format_bytes(held)} are the same on {axis.size} devices",
        size=held,
    )


def _held(subject: Subject, axis: Axis, length: int = 0) -> int:
    """The bytes at the peak of values that are the same along an axis; of those of one length."""
    held = list(values_along(subject, axis))
    alive = at_peak(subject, held) if held else []
    return sum(one.buffer.size for one in alive if not length or length in one.layout.whole)


def _is_of_pairs(subject: Subject, batch: Sequence[Argument], axis: Axis) -> bool:
    """Whether most of it is of pairs of rows: for one of the two the rows are wanted whole."""
    length = batch[0][2].whole[0]
    largest = max(values_along(subject, axis), key=lambda held: held.buffer.size, default=None)
    return largest is not None and largest.layout.whole.count(length) > 1


def _batch(subject: Subject) -> list[Argument]:
    """The inputs that have the length of most of them."""
    return max(_inputs(subject).values(), key=len, default=[])


def _inputs(subject: Subject) -> dict[int, list[Argument]]:
    """The inputs by their length."""
    found: dict[int, list[Argument]] = {}
    for name, buffer, layout in subject.arguments:
        if subject.is_input(name, buffer) and layout.whole not in _NO_ROWS:
            found.setdefault(layout.whole[0], []).append((name, buffer, layout))
    return found


def _model_axes(subject: Subject) -> list[Axis]:
    """The axes that split arguments, and no input."""
    taken = input_axes(subject)
    used = [
        axis
        for _, _, layout in subject.arguments
        if layout.sharding is not None
        for axis in layout.sharding.used
    ]
    return [axis for axis in dict.fromkeys(used) if axis.size > 1 and axis not in taken]


def _wishes(batch: Sequence[Argument], axis: Axis) -> Iterator[Wish]:
    for name, buffer, layout in batch:
        sharding = layout.sharding
        if sharding is None or axis in sharding.used:
            continue
        if sharding.shard(layout.whole)[0] % axis.size == 0:
            yield Wish("replicated", name, buffer, layout, sharding.with_axis(0, axis))


def _splits_values(subject: Subject, axis: Axis) -> bool:
    """Whether an axis splits as much as it leaves whole, what has the model's own shapes aside."""
    weights = weight_shapes(subject)
    split, whole = 0, 0
    for buffer, layout in subject.values:
        if layout.sharding is None or tuple(sorted(layout.whole)) in weights:
            continue
        if axis in layout.sharding.used:
            split += buffer.size * axis.size
        else:
            whole += buffer.size
    return split >= whole
