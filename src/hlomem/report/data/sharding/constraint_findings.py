"""Findings on constraints alone: what they ask for is unlikely to be meant.

The plan does not tell what another sharding would save, because it decides what XLA computes and
where. So these are only for changes that are compiled: whole arrays, uneven parts, and ways between
shardings that take several moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.phases import is_backward, is_recomputed
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.gather_findings import source_sharding, steps_between
from hlomem.report.data.sharding.sources import axes_before
from hlomem.report.data.sharding.stacks import stacked_length
from hlomem.report.data.sharding.value_findings import input_axes
from hlomem.report.data.sharding.values import split_further

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from hlomem.hlo.sharding import Sharding
    from hlomem.report.data.sharding.finding import FindingKind, Place
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import Constraint

_LARGE = 0.05
"""The share of the memory that an array under a constraint takes, so that it is looked at."""
_MAX_FOUND = 4
_TOGETHER = ("padding", "stack", "replicated", "dropped")
"""Kinds of which other constraints that ask for the same are part, as those on a loop's carry."""
_WHY: dict[str, str] = {
    "padding": "the axes do not divide it evenly",
    "reshard": "it is several moves from the sharding before",
    "gathered": "it is gathered before the layers, and stays for the backward pass",
    "dropped": "a function that asks for it leaves out axes that do not divide it",
    "replicated": "it is whole along axes that its value can be split along",
    "stack": "it leaves out an axis that the value can be split along, and loops stack values",
}


class Doubt(NamedTuple):
    """A constraint, and what it could be instead."""

    kind: FindingKind
    constraint: Constraint
    size: int
    shardings: tuple[Sharding, ...]
    through: tuple[str, ...] = ()


def find_odd_constraints(subject: Subject) -> Iterator[ShardingFinding]:
    """Large arrays under constraints that ask for the whole, for uneven parts, or for far ones.

    Those of one expression, as on the leaves of a tree, are one.
    """
    found: dict[Place, list[Doubt]] = {}
    for constraint in subject.whole.constraints if subject.whole else ():
        place = subject.place(constraint.value)
        doubt = _doubt(subject, constraint) if place is not None else None
        if place is not None and doubt is not None:
            found.setdefault(place, []).append(doubt)
    sizes = {place: sum(_sizes(doubts)) for place, doubts in found.items()}
    largest = sorted(found, key=lambda place: -sizes[place])
    large = [place for place in largest if sizes[place] >= _LARGE * subject.space.size]
    for place in large[:_MAX_FOUND]:
        first = max(found[place], key=lambda doubt: doubt.size)
        yield _finding(subject, place, _for_all(subject, place, first), sizes[place])


def _sizes(doubts: Sequence[Doubt]) -> Iterable[int]:
    """Bytes of the arrays under doubt; of equal ones, as those of several layers, once."""
    return {doubt.constraint.value.dimensions: doubt.size for doubt in doubts}.values()


def _for_all(subject: Subject, place: Place, doubt: Doubt) -> Doubt:
    """A doubt with the shardings that all arrays under constraints of an expression can have."""
    constraints = subject.whole.constraints if subject.whole else ()
    at_place = [one.value for one in constraints if subject.place(one.value) == place]
    shapes = {value.dimensions for value in at_place if not is_backward(value.op_name)}
    fitting = [one for one in doubt.shardings if all(_fits(one, shape) for shape in shapes)]
    return doubt if len(shapes) == 1 else doubt._replace(shardings=tuple(fitting))


def _fits(sharding: Sharding, shape: Sequence[int]) -> bool:
    used = [at for at, axes in enumerate(sharding.dimensions) if axes]
    return all(at < len(shape) and shape[at] % sharding.split_of(at) == 0 for at in used)


def _doubt(subject: Subject, constraint: Constraint) -> Doubt | None:
    value, sharding = constraint.value, constraint.sharding
    if is_backward(value.op_name) or is_recomputed(value.op_name):
        return None
    whole = value.dimensions
    size = value.size
    if any(one % sharding.split_of(at) for at, one in enumerate(whole)):
        return Doubt("padding", constraint, size, _even(sharding, whole))
    before = source_sharding(subject, value)
    if not sharding.used:
        return _whole(subject, constraint, size, before)
    steps = () if before is None else steps_between(before, sharding)
    if before is None or not steps:
        return _left_out(subject, constraint, size)
    return Doubt("reshard", constraint, size, (before,), steps)


def _even(sharding: Sharding, whole: tuple[int, ...]) -> tuple[Sharding, ...]:
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
            found.append(made)
    return tuple(found[:3])


def _whole(
    subject: Subject, constraint: Constraint, size: int, before: Sharding | None
) -> Doubt | None:
    """A constraint that asks for the whole array, of which a part was there before."""
    value = constraint.value
    number = None if subject.whole is None else subject.whole.argument_of(value)
    length = stacked_length(value)
    if number is not None and (length == 1 or subject.is_trained):
        is_repeated = bool(value.calls) or not subject.is_trained
        if is_repeated or before is None or not before.used:
            return None
        return Doubt("gathered", constraint, size, (before,))
    if before is None or not before.used:
        before = _as_before(subject, constraint)
    if before is constraint.sharding:
        before = split_further(before, value.dimensions)
    if before is None:
        return None
    kind = _kind(subject, constraint, before, is_stack=length > 1)
    return Doubt(kind, constraint, size * length, (before,))


def _left_out(subject: Subject, constraint: Constraint, size: int) -> Doubt | None:
    """A constraint without an axis that splits its operand; where no loop stacks, and the inputs.

    The axes of a model leave out values by choice.
    """
    stack = _largest_stack(subject)
    if stack:
        wanted = _as_before(subject, constraint)
    else:
        axes = {axis.name for axis in input_axes(subject)}
        wanted = _as_before(subject, constraint, axes)
    if wanted is constraint.sharding:
        return None
    kind = _kind(subject, constraint, wanted, is_stack=bool(stack))
    return Doubt(kind, constraint, stack or size, (wanted,))


def _kind(
    subject: Subject, constraint: Constraint, wanted: Sharding, *, is_stack: bool
) -> FindingKind:
    more = [axis for axis in wanted.used if axis not in constraint.sharding.used]
    if subject.is_axis_dropped(constraint, more):
        return "dropped"
    return "stack" if is_stack else "replicated"


def _as_before(
    subject: Subject, constraint: Constraint, axes: Container[str] | None = None
) -> Sharding:
    """A constraint's sharding with the axes that split its operand; or with some of them."""
    value, wanted = constraint.value, constraint.sharding
    for at, one in enumerate(value.dimensions):
        for axis in axes_before(subject.whole, value, at) if subject.whole else ():
            is_free = axis.name in {free.name for free in wanted.free}
            is_free = is_free and (axes is None or axis.name in axes)
            if is_free and one % (wanted.split_of(at) * axis.size) == 0:
                wanted = wanted.with_axis(at, axis)
    return wanted


def _largest_stack(subject: Subject) -> int:
    """Bytes of the largest stack that a loop makes."""
    stacks = [buffer.size for buffer, _ in subject.values if buffer.role == roles.STACKED]
    return max(stacks, default=0)


def _finding(subject: Subject, place: Place, doubt: Doubt, size: int) -> ShardingFinding:
    asked, value = doubt.constraint.sharding.spec(), doubt.constraint.value
    first, *rest = [sharding.spec() for sharding in doubt.shardings] or [""]
    return ShardingFinding(
        kind=doubt.kind,
        title=f"the constraint {asked} on {list(value.dimensions)}",
        why=f"{list(value.dimensions)} is {format_bytes(doubt.size)} in all; {_WHY[doubt.kind]}",
        size=size,
        promised=0,
        source=subject.whole.line(value) if subject.whole else None,
        names=(f"{place.file}:{place.line}:{place.column}",),
        axes=tuple([axis.name for axis in doubt.constraint.sharding.used]),
        how=f"with_sharding_constraint(x, NamedSharding(mesh, {first}))"
        if first
        else f"leave out the constraint {asked}",
        change=ShardingChange(
            constraint=first,
            alternatives=tuple(rest),
            through=doubt.through,
            place=place,
            dimensions=value.dimensions,
            asked=asked,
            pins=subject.places_alike(doubt.constraint) if doubt.kind in _TOGETHER else (),
            may_be_left_out=not doubt.constraint.sharding.used,
        ),
        is_other=True,
    )
