"""Findings on constraints alone: what they ask for is unlikely to be meant.

The plan does not tell what another sharding would save, because it decides what XLA computes and
where. So these are only for changes that are compiled: whole arrays, uneven parts, and ways between
shardings that take several moves.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.phases import is_backward, is_recomputed
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.gather_findings import source_sharding, steps_between
from hlomem.report.data.sharding.sources import axes_before
from hlomem.report.data.sharding.values import split_further

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.sharding import Sharding
    from hlomem.report.data.sharding.finding import FindingKind, Place
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import Constraint

_LARGE = 0.05
"""The share of the memory that an array under a constraint takes, so that it is looked at."""
_MAX_FOUND = 4
_TOGETHER = ("padding", "stack")
"""Kinds of which other constraints that ask for the same are part, as those on a loop's carry."""
_WHY: dict[str, str] = {
    "padding": "the axes do not divide it evenly",
    "reshard": "it is several moves from the sharding before",
    "gathered": "it is gathered before the layers, and stays for the backward pass",
    "replicated": "it is whole on every device",
    "stack": "it leaves out an axis that the value is split along before, and loops stack values",
}


class Doubt(NamedTuple):
    """A constraint, and what it could be instead."""

    kind: FindingKind
    constraint: Constraint
    size: int
    specs: tuple[str, ...]
    through: tuple[str, ...] = ()


def find_odd_constraints(subject: Subject) -> Iterator[ShardingFinding]:
    """Large arrays under constraints that ask for the whole, for uneven parts, or for far ones."""
    found: dict[Place, Doubt] = {}
    for constraint in subject.whole.constraints if subject.whole else ():
        place = subject.place(constraint.value)
        doubt = _doubt(subject, constraint)
        if place is None or doubt is None or doubt.size < _LARGE * subject.space.size:
            continue
        if place not in found or found[place].size < doubt.size:
            found[place] = doubt
    largest = sorted(found.items(), key=lambda item: -item[1].size)
    for place, doubt in largest[:_MAX_FOUND]:
        yield _finding(subject, place, doubt)


def _doubt(subject: Subject, constraint: Constraint) -> Doubt | None:
    value, sharding = constraint.value, constraint.sharding
    if is_backward(value.op_name) or is_recomputed(value.op_name):
        return None
    whole = value.dimensions
    size = prod(whole) * value.instruction.shape.element_type.byte_width
    if any(one % sharding.split_of(at) for at, one in enumerate(whole)):
        return Doubt("padding", constraint, size, _even(sharding, whole))
    before = source_sharding(subject, value)
    if not sharding.used:
        return _whole(subject, constraint, size, before)
    steps = () if before is None else steps_between(before, sharding)
    if before is None or not steps:
        return _left_out(subject, constraint)
    return Doubt("reshard", constraint, size, (before.spec(),), steps)


def _even(sharding: Sharding, whole: tuple[int, ...]) -> tuple[str, ...]:
    """The dimensions that the axes of an uneven split divide."""
    rows = [
        axes if size % sharding.split_of(at) == 0 else ()
        for at, (axes, size) in enumerate(zip(sharding.dimensions, whole, strict=False))
    ]
    bare = type(sharding)(sharding.mesh, tuple(rows))
    lost = [axis for axis in sharding.used if axis not in bare.used]
    found = []
    for at in range(len(whole)):
        made = bare
        for axis in lost:
            made = made.with_axis(at, axis)
        if whole[at] % made.split_of(at) == 0:
            found.append(made.spec())
    return tuple(found[:3])


def _whole(
    subject: Subject, constraint: Constraint, size: int, before: Sharding | None
) -> Doubt | None:
    """A constraint that asks for the whole array, of which a part was there before."""
    value = constraint.value
    number = None if subject.whole is None else subject.whole.argument_of(value)
    if number is not None:
        is_repeated = bool(value.calls) or not subject.is_trained
        if is_repeated or before is None or not before.used:
            return None
        return Doubt("gathered", constraint, size, (before.spec(),))
    if before is None or not before.used:
        before = split_further(constraint.sharding, value.dimensions)
    return None if before is None else Doubt("replicated", constraint, size, (before.spec(),))


def _left_out(subject: Subject, constraint: Constraint) -> Doubt | None:
    """A constraint without an axis that splits its operand, where loops stack values."""
    value, wanted = constraint.value, constraint.sharding
    size = _largest_stack(subject)
    if subject.whole is None or not size:
        return None
    for at, one in enumerate(value.dimensions):
        for axis in axes_before(subject.whole, value, at):
            is_free = axis.name in {free.name for free in wanted.free}
            if is_free and one % (wanted.split_of(at) * axis.size) == 0:
                wanted = wanted.with_axis(at, axis)
    if wanted is constraint.sharding:
        return None
    return Doubt("stack", constraint, size, (wanted.spec(),))


def _largest_stack(subject: Subject) -> int:
    """Bytes of the largest stack that a loop makes."""
    stacks = [buffer.size for buffer, _ in subject.values if buffer.role == roles.STACKED]
    return max(stacks, default=0)


def _finding(subject: Subject, place: Place, doubt: Doubt) -> ShardingFinding:
    asked, value = doubt.constraint.sharding.spec(), doubt.constraint.value
    first, *rest = doubt.specs or ("",)
    return ShardingFinding(
        kind=doubt.kind,
        title=f"the constraint {asked} on {list(value.dimensions)}",
        why=f"{list(value.dimensions)} is {format_bytes(doubt.size)} in all; {_WHY[doubt.kind]}",
        size=doubt.size,
        promised=0,
        source=subject.whole.line(value) if subject.whole else None,
        names=(f"{place.file}:{place.line}:{place.column}",),
        axes=tuple([axis.name for axis in doubt.constraint.sharding.used]),
        how=f"with_sharding_constraint(x, NamedSharding(mesh, {first}))",
        change=ShardingChange(
            constraint=first,
            alternatives=tuple(rest),
            through=doubt.through,
            place=place,
            pins=subject.places_alike(doubt.constraint) if doubt.kind in _TOGETHER else (),
        ),
        is_other=True,
    )
