"""Values that could be split further, and those that cannot: sums that are not reduced yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.phases import is_forward

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.sharding import Axis, Sharding
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import WholeValue

WORTH = 0.01
"""Smallest share of a memory space that a finding is about."""
_PRODUCTS = ("dot", "convolution", "all-reduce", "reduce-scatter", "custom-call")


class Held(NamedTuple):
    """A value, its layout, and the sharding it could have."""

    buffer: Buffer
    layout: Layout
    wanted: Sharding

    @property
    def share(self) -> float:
        """The share of its bytes that is left."""
        assert self.layout.sharding is not None
        return self.wanted.replication / self.layout.sharding.replication


def split_further(
    sharding: Sharding,
    whole: Sequence[int],
    axes: Sequence[Axis] | None = None,
    *,
    is_spread: bool = False,
    written: Mapping[tuple[int, str], int] | None = None,
) -> Sharding | None:
    """The sharding with those free axes that divide a dimension; None if there are none.

    The longest dimension on a device is split; with `is_spread` one that is still whole, if any,
    and the one whose size an axis splits most often elsewhere, by how often that is `written`.
    """
    often = written or {}
    found = sharding
    free = sharding.free if axes is None else axes
    for axis in sorted(free, key=lambda axis: -axis.size):
        local = found.shard(whole)
        fitting = [
            at
            for at, size in enumerate(local)
            if size % axis.size == 0 and whole[at] % found.split_of(at) == 0
        ]
        if fitting:
            whole_first = [at for at in fitting if found.split_of(at) == 1] if is_spread else []
            counts = {at: often.get((whole[at], axis.name), 0) for at in fitting}
            best = max(whole_first or fitting, key=lambda at: (counts[at], local[at], at == 0))
            found = found.with_axis(best, axis)
    return None if found is sharding else found


def values_along(subject: Subject, axis: Axis) -> Iterator[Held]:
    """Values that are no weights and the same along an axis that divides them."""
    weights = weight_shapes(subject)
    for buffer, layout in subject.values:
        is_other = buffer.id in subject.resharded or buffer.role == roles.GATHERED
        shape = tuple(sorted(layout.whole))
        is_alike = shape in weights and is_of_weights(subject, buffer.op_name, layout.value)
        if not is_other and not is_alike:
            found = _along(subject, buffer, layout, axis)
            if found is not None:
                yield found


def is_of_weights(subject: Subject, name: str | None, value: WholeValue | None) -> bool:
    """Whether a value of the shape of weights is of them: a part, a gradient or an update.

    What the forward pass computes of several values has such a shape by chance.
    """
    is_computed = is_forward(name) or not subject.is_trained
    if not is_computed or value is None or subject.whole is None:
        return True
    if value.instruction.opcode == "dynamic-update-slice":
        value = subject.whole.stored_by(value)
    return subject.whole.argument_of(value) is not None


def weight_shapes(subject: Subject) -> set[tuple[int, ...]]:
    """The shapes of the model's parameters and of slices of them, dimensions sorted."""
    shapes: set[tuple[int, ...]] = set()
    for name, buffer, layout in subject.arguments:
        if not subject.is_input(name, buffer):
            whole = sorted([size for size in layout.whole if size != 1])
            shapes |= {(*whole[:at], *whole[at + 1 :]) for at in range(len(whole))}
            shapes.add(tuple(whole))
    return shapes


def _along(subject: Subject, buffer: Buffer, layout: Layout, axis: Axis) -> Held | None:
    sharding = layout.sharding
    if sharding is None or axis.name not in {free.name for free in sharding.free}:
        return None
    is_stack = buffer.role == roles.STACKED
    local = sharding.shard(layout.whole)
    fitting = [at for at, size in enumerate(local) if size % axis.size == 0 and at >= is_stack]
    if not fitting:
        return None
    written, whole = subject.layouts.written, layout.whole
    best = max(fitting, key=lambda at: (written.get((whole[at], axis.name), 0), -at))
    return Held(buffer, layout, sharding.with_axis(best, axis))


def is_partial(subject: Subject, buffer: Buffer) -> bool:
    """Whether a value may be a sum over parts of the batch, whole until it is reduced."""
    one = subject.memory.instruction_by_name.get(buffer.name.partition("{")[0])
    return one is not None and _is_product(one)


def _is_product(one: HloInstruction) -> bool:
    if one.opcode == "fusion":
        return any(_is_product(part) for part in one.called_computations[0].instructions)
    return one.opcode in _PRODUCTS
