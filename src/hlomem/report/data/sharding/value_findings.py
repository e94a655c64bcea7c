"""Findings on values: whole where inputs are split, stacked whole by loops, padded by division."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.nearness import near_constraints
from hlomem.report.data.sharding.promise import promise
from hlomem.report.data.sharding.values import (
    WORTH,
    Held,
    is_of_weights,
    split_further,
    values_along,
    weight_shapes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.sharding import Axis, Sharding
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.finding import FindingKind, Place
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import Constraint, WholeValue


_MAX_OTHERS = 3
_MAX_WAYS = 2
_MAX_CALLS = 2
_UNLIKE = 2
_FEW_STEPS = 8
_LARGE = 5
"""How many times the least finding a value has to be where it is not at the peak."""


def find_whole_values(subject: Subject) -> Iterator[ShardingFinding]:
    """Values that depend on inputs and are the same along an axis that splits the inputs."""
    for axis in [*input_axes(subject), *idle_axes(subject)]:
        yield from find_whole_along(subject, axis)


def find_whole_along(subject: Subject, axis: Axis) -> Iterator[ShardingFinding]:
    """Values that are the same along an axis."""
    held = list(values_along(subject, axis))
    computed = [found for found in held if not _is_gathered(subject, found.buffer)]
    if any(found.buffer.size >= WORTH * subject.space.size for found in computed):
        yield from _told(subject, axis, held)


def input_axes(subject: Subject) -> list[Axis]:
    """The axes of the mesh that split a batch or another input.

    Next to arguments that are data by their names, one of the same batch is data, too; others may
    be weights that are not trained.
    """
    data = [one for one in subject.arguments if subject.is_input(one[0], one[1])]
    batches = {its.whole[0] for _, buffer, its in data if buffer.role == roles.INPUTS and its.whole}
    found: dict[Axis, None] = {}
    for _, buffer, layout in data:
        is_data = not batches or buffer.role == roles.INPUTS or batches & set(layout.whole[:2])
        if is_data and layout.sharding is not None:
            found.update(dict.fromkeys(layout.sharding.used))
    return [axis for axis in found if axis.size > 1 and not axis.part]


def idle_axes(subject: Subject) -> list[Axis]:
    """The axes of the mesh that split nothing that the program is given or returns, nor anything
    large that it constrains.
    """
    shardings = [layout.sharding for _, _, layout in (*subject.arguments, *subject.results)]
    if subject.whole is not None:
        shardings += [
            constraint.sharding
            for constraint in subject.whole.constraints
            if constraint.value.size >= WORTH * subject.space.size
        ]
    used = {axis.name for one in shardings if one is not None for axis in one.used}
    mesh = subject.layouts.mesh
    axes = mesh.axes if mesh is not None else ()
    return [axis for axis in axes if axis.size > 1 and axis.name not in used]


class Way(NamedTuple):
    """A place where a sharding could be asked for."""

    value: WholeValue | None
    wanted: Sharding
    others: tuple[str, ...] = ()
    constraint: Constraint | None = None
    """The constraint that is there already."""


def _told(subject: Subject, axis: Axis, held: Sequence[Held]) -> Iterator[ShardingFinding]:
    share = {found.buffer.id: found.share for found in held}
    saved = promise(subject.memory, subject.space, _with_pieces(subject, share))
    largest = max(found.buffer.size for found in held)
    if max(saved, largest / _LARGE) < WORTH * subject.space.size:
        return
    computed = [found for found in held if not _is_gathered(subject, found.buffer)]
    alive = at_peak(subject, computed)
    stacks = [found for found in alive if found.buffer.role == roles.STACKED]
    is_stack = 2 * _size(stacks) >= _size(alive)
    first = max(stacks if is_stack else alive, key=lambda found: _precedence(found, is_stack))
    size = _size(alive)
    what = "stacks" if is_stack else "values"
    for number, way in enumerate(_ways(subject, axis, first)):
        dimensions, asked = subject.asked_at(way.value)
        found = ShardingFinding(
            kind=_kind(subject, axis, way, is_stack=is_stack),
            title=f"{what} of {format_bytes(size)} on each device are the same along {axis.name}",
            why=_why(first, axis, way.constraint, is_idle=axis in idle_axes(subject)),
            size=size,
            promised=saved,
            source=_line(subject, way, is_stack=is_stack) or first.buffer.source,
            names=tuple([one.buffer.name for one in sorted(alive, key=lambda f: -f.buffer.size)]),
            axes=(axis.name,),
            how=f"with_sharding_constraint(x, NamedSharding(mesh, {way.wanted.spec()}))",
            change=ShardingChange(
                constraint=way.wanted.spec(),
                alternatives=way.others,
                place=subject.place(way.value) if way.value else None,
                dimensions=dimensions,
                asked=asked,
                pins=subject.places_alike(way.constraint) if way.constraint else (),
                may_be_left_out=way.constraint is not None and not way.constraint.sharding.used,
            ),
            is_other=number > 0,
        )
        calls: list[Place] = []
        if way.value is not None and way.constraint is None and not is_stack:
            calls = subject.places_of_calls(way.value)[:_MAX_CALLS]
        for call in calls:
            change = replace(found.change, place=call)
            yield replace(found, source=f"{call.file}:{call.line}", change=change, is_other=True)
        yield found


def _is_gathered(subject: Subject, buffer: Buffer) -> bool:
    """Whether a value is only gathered: it may be needed whole. A sum over devices is computed."""
    made = subject.memory.instruction_by_name.get(buffer.name.partition("{")[0])
    is_sum = made is not None and made.opcode.startswith("all-reduce")
    return buffer.role == roles.COLLECTIVES and not is_sum


def _kind(subject: Subject, axis: Axis, way: Way, *, is_stack: bool) -> FindingKind:
    if way.constraint is not None and subject.is_axis_dropped(way.constraint, (axis,)):
        return "dropped"
    return "stack" if is_stack else "replicated"


def _ways(subject: Subject, axis: Axis, first: Held) -> Iterator[Way]:
    """Constraints that keep a value whole, the likeliest first, and the value itself."""
    value, wanted = _as_computed(subject, first)
    if value is None or subject.whole is None:
        yield Way(value, wanted)
        return
    for constraint in _keeping(subject, axis, value):
        if (moved := _moved(subject, wanted, axis, constraint)) is not None:
            bare = constraint.sharding
            others = _alternatives(bare, constraint.value.dimensions, moved.spec(), (axis,))
            yield Way(constraint.value, moved, others[:1], constraint)
    yield Way(value, wanted)


def _moved(
    subject: Subject, wanted: Sharding, axis: Axis, constraint: Constraint
) -> Sharding | None:
    """A constraint's sharding with one more axis: where the value has it, or elsewhere."""
    whole, sharding = constraint.value.dimensions, constraint.sharding
    local = sharding.shard(whole)
    fitting = [at for at, size in enumerate(local) if size % axis.size == 0]
    if not fitting:
        return None
    there = [at for at, axes in enumerate(wanted.dimensions) if axis in axes]
    written = subject.layouts.written
    best = max(fitting, key=lambda at: (at in there, written.get((whole[at], axis.name), 0), -at))
    return sharding.with_axis(best, axis)


def _line(subject: Subject, way: Way, *, is_stack: bool) -> str | None:
    """The line of a constraint or a value; of a stack that none keeps whole, that of its loop."""
    if subject.whole is None or way.value is None:
        return None
    if is_stack and way.constraint is None:
        return subject.whole.line_of_loop(way.value)
    return subject.whole.line(way.value)


def _with_pieces(subject: Subject, share: dict[ValueId, float]) -> dict[ValueId, float]:
    """The same with the pieces in which collectives bring values into their sharding."""
    of_name: dict[str, float] = {}
    for buffer, _ in subject.values:
        if buffer.id in share and buffer.op_name:
            of_name[buffer.op_name] = share[buffer.id]
    pieces = {
        buffer.id: of_name[buffer.op_name]
        for buffer in subject.memory.buffers
        if buffer.op_name in of_name and buffer.id not in share and not subject.layouts.of(buffer)
    }
    return {**pieces, **share}


def at_peak(subject: Subject, held: Sequence[Held]) -> list[Held]:
    """Those that own bytes at the peak; all of them where no steps are known."""
    step = subject.memory.fullest_step(subject.space.color)
    if step is None:
        return list(held)
    alive = {part.buffer.id for part in subject.memory.alive(subject.space.color, step)}
    largest = max(held, key=lambda found: found.buffer.size)
    return [found for found in held if found.buffer.id in alive] or [largest]


def _size(held: Sequence[Held]) -> int:
    return sum(found.buffer.size for found in held)


def _precedence(found: Held, is_stack: bool) -> tuple[int, int]:
    """The largest first, of any type; among equal ones the one computed first."""
    start = found.buffer.start or 0
    return (found.buffer.size, -start) if is_stack else (prod(found.layout.local), -start)


def _as_computed(subject: Subject, first: Held) -> tuple[WholeValue | None, Sharding]:
    """The value in the user's code; for a stack, the one that is stacked, of lower rank."""
    value, wanted = first.layout.value, first.wanted
    if value is None or subject.whole is None:
        return None, wanted
    if value.instruction.opcode != "dynamic-update-slice":
        value = subject.whole.computed(value)
        return value, with_ones(wanted, value.dimensions)
    stored = subject.whole.stored_by(value)
    rows = wanted.dimensions[1:]
    rank = len(stored.dimensions)
    rows = rows[len(rows) - rank :] if rank < len(rows) else rows
    return stored, with_ones(type(wanted)(wanted.mesh, rows), stored.dimensions)


def with_ones(sharding: Sharding, dimensions: Sequence[int]) -> Sharding:
    """The sharding of an array that also has dimensions of one element."""
    kept = [at for at, size in enumerate(dimensions) if size != 1]
    if len(kept) == len(dimensions) or len(kept) < len(sharding.dimensions):
        return sharding
    rows: list[tuple[Axis, ...]] = [() for _ in dimensions]
    for at, axes in zip(kept, sharding.dimensions, strict=False):
        rows[at] = axes
    return type(sharding)(sharding.mesh, tuple(rows))


def _keeping(subject: Subject, axis: Axis, value: WholeValue) -> list[Constraint]:
    """Constraints of the user that keep a value whole along an axis, the likeliest first.

    Those on values of its shape, or nearly so, before others; the nearest first.
    """
    assert subject.whole is not None

    def has_axis(sharding: Sharding) -> bool:
        return axis.name in {used.name for used in sharding.used}

    weights = weight_shapes(subject)
    found: dict[Place | None, tuple[int, int, Constraint]] = {}
    for steps, one in near_constraints(subject.whole, value, has_axis):
        is_alike = tuple(sorted(one.value.dimensions)) in weights
        is_weight = is_alike and is_of_weights(subject, one.value.op_name, one.value)
        if has_axis(one.sharding) or is_weight or "transpose(" in one.value.op_name:
            continue
        likeness = _likeness(one.value.dimensions, value.dimensions)
        if likeness < _UNLIKE or steps <= _FEW_STEPS:
            found.setdefault(subject.place(one.value), (likeness, steps, one))
    best = sorted(found.values(), key=lambda one: one[:2])
    return [one for _, _, one in best[:_MAX_WAYS]]


def _likeness(one: Sequence[int], other: Sequence[int]) -> int:
    """0 for equal shapes, 1 for those that differ in their last dimension only, 2 for others."""
    if tuple(one) == tuple(other):
        return 0
    return 1 if len(one) == len(other) > 2 and one[:-1] == other[:-1] else _UNLIKE


def _why(first: Held, axis: Axis, constraint: Constraint | None, *, is_idle: bool) -> str:
    assert first.layout.sharding is not None
    words = (
        f"{first.buffer.name} {list(first.layout.whole)} is {first.layout.sharding.spec()};"
        f" {'no large array is' if is_idle else 'inputs are'} split along {axis.name} ({axis.size})"
    )
    if constraint is not None:
        return f"{words}; the constraint {constraint.sharding.spec()} keeps it whole"
    return words


def find_padding(subject: Subject) -> Iterator[ShardingFinding]:
    """Values whose last part is filled up, because a dimension does not divide evenly."""
    groups: dict[str | None, list[tuple[Buffer, Layout]]] = defaultdict(list)
    for buffer, layout in subject.values:
        if layout.uneven > 0:
            value = layout.value
            line = subject.whole.line(value) if subject.whole and value else buffer.source
            groups[line].append((buffer, layout))
    held = [one for group in groups.values() for one in group]
    share = {buffer.id: 1 - layout.uneven for buffer, layout in held}
    saved = promise(subject.memory, subject.space, _with_pieces(subject, share)) if held else 0
    largest = max([buffer.size * layout.uneven for buffer, layout in held], default=0)
    if max(saved, largest / _LARGE) < WORTH * subject.space.size:
        return
    buffer, layout = max(held, key=lambda one: (one[0].size * one[1].uneven, -(one[0].start or 0)))
    yield _padded(subject, buffer, layout, saved)


def _padded(subject: Subject, buffer: Buffer, layout: Layout, saved: int) -> ShardingFinding:
    assert layout.sharding is not None
    constraint = _uneven_constraint(subject, layout.value)
    value = layout.value if constraint is None else constraint.value
    sharding = layout.sharding if constraint is None else constraint.sharding
    whole = layout.whole if constraint is None else constraint.value.dimensions
    at = next((at for at, size in enumerate(whole) if size % sharding.split_of(at)), 0)
    rows = [() if one == at else axes for one, axes in enumerate(sharding.dimensions)]
    wanted = split_further(type(sharding)(sharding.mesh, tuple(rows)), whole)
    spec = "" if wanted is None else wanted.spec()
    size, count = whole[at] if whole else 0, sharding.split_of(at)
    more = -(-size // count) * count
    dimensions, asked = subject.asked_at(value)
    return ShardingFinding(
        kind="padding",
        title=f"{size} over {count} devices is padded to {more}:"
        f" {layout.uneven:.0%} of {buffer.name} is padding",
        why=f"{list(whole)} is {sharding.spec()}, and {size} is not divisible by {count}",
        size=int(buffer.size * layout.uneven),
        promised=saved,
        source=subject.whole.line(value) if subject.whole and value else buffer.source,
        names=(buffer.name,),
        axes=tuple([axis.name for axis in sharding.dimensions[at]]),
        how=f"with_sharding_constraint(x, NamedSharding(mesh, {spec}))"
        if spec
        else f"a dimension that {count} divides",
        change=ShardingChange(
            constraint=spec,
            alternatives=_alternatives(type(sharding)(sharding.mesh, tuple(rows)), whole, spec),
            place=subject.place(value) if value else None,
            dimensions=dimensions,
            asked=asked,
            pins=() if constraint is None else subject.places_alike(constraint),
        ),
    )


def _alternatives(
    sharding: Sharding, whole: Sequence[int], spec: str, axes: Sequence[Axis] | None = None
) -> tuple[str, ...]:
    """Other dimensions that the free axes divide, or some of them."""
    found = []
    for axis in sharding.free if axes is None else axes:
        for at, size in enumerate(sharding.shard(whole)):
            made = sharding.with_axis(at, axis).spec()
            if size % axis.size == 0 and made != spec:
                found.append(made)
    return tuple(dict.fromkeys(found))[:_MAX_OTHERS]


def _uneven_constraint(subject: Subject, value: WholeValue | None) -> Constraint | None:
    """The nearest constraint to a value that does not divide its own, or else the first."""
    if subject.whole is None:
        return None
    near = [] if value is None else [one for _, one in near_constraints(subject.whole, value)]
    for constraint in (*near, *subject.whole.constraints):
        whole, sharding = constraint.value.dimensions, constraint.sharding
        is_forward = "transpose(" not in constraint.value.op_name
        if is_forward and any(size % sharding.split_of(at) for at, size in enumerate(whole)):
            return constraint
    return None
