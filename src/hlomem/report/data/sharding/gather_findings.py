"""Findings on collectives: weights kept gathered, and values resharded through a full copy."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.patterns import lazy_pattern
from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.phases import is_backward, is_forward
from hlomem.report.data.sharding.collectives import (
    find_argument,
    find_gathered,
    gather_stored,
)
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.nearness import near_constraints
from hlomem.report.data.sharding.promise import Steps, promise
from hlomem.report.data.sharding.stacks import stacked_length
from hlomem.report.data.sharding.values import WORTH
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.sharding import Axis, Sharding
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.finding import Place
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import Constraint, WholeValue

_SMALL = 0.001
_BY_HAND = "/all_gather"
"""JAX's name of a gather that the user wrote, in a `shard_map`."""
_WARNING = "Involuntary full rematerialization"
_OPERATION = lazy_pattern(r"HLO operation:? %?([\w.-]++) = ([^\n]*+)")
_NAME = lazy_pattern(r'op_name="((?:[^"\\\n]|\\.)*+)"')
_FROM_TO = lazy_pattern(r"from sharding (\{[^\n]*?\}) to (\{[^\n]*?\}) (?:efficiently|without)")
_MAX_HOPS = 16
_MAX_PLACES = 3
_JOINED = 4
"""How many times larger or smaller an array under a constraint may be than what is gathered."""
_ONE_MOVE = 2


class Kept(NamedTuple):
    """A gathered value that stays for the backward pass."""

    buffer: Buffer
    argument: str
    steps: Steps
    """The steps at which it is read; none for a stack, of which each part is gathered again."""
    line: str | None


def find_kept_gathers(subject: Subject) -> Iterator[ShardingFinding]:
    """Weights that are gathered once for both passes."""
    if not subject.is_trained:
        return
    kept = list({one.buffer.id: one for one in _kept(subject)}.values())
    lives = {one.buffer.id: one.steps for one in kept}
    saved = promise(subject.memory, subject.space, {}, lives) if kept else 0
    if saved < WORTH * subject.space.size:
        yield from _gathered_at_once(subject, kept)
        return
    step = subject.memory.fullest_step(subject.space.color) or 0
    alive = {part.buffer.id for part in subject.memory.alive(subject.space.color, step)}
    kept = [one for one in kept if one.buffer.id in alive] or kept
    by_line: dict[str | None, int] = defaultdict(int)
    for one in kept:
        by_line[one.line] += one.buffer.size
    line = max(by_line, key=lambda one: (by_line[one], one or ""))
    names = tuple(dict.fromkeys([one.argument for one in kept]))
    size = sum(one.buffer.size for one in kept)
    first = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
    yield ShardingFinding(
        kind="gathered",
        title=f"{first}: {format_bytes(size)} gathered by the forward pass, kept for the backward",
        why=f"{len(kept)} gathered values stay on each device from the forward pass until the"
        " backward pass reads them; gathering them again needs only the parts",
        size=size,
        promised=saved,
        source=line,
        names=names,
        axes=(),
        how="jax.checkpoint around the layers, with a policy that drops what is gathered",
        change=ShardingChange(drops_gathered=True),
    )


def _gathered_at_once(subject: Subject, kept: Sequence[Kept]) -> Iterator[ShardingFinding]:
    """A constraint that makes whole what loops of both passes read part by part."""
    names = {one.argument for one in kept}
    of_number = {
        its.value.instruction.parameter_number: (name, its)
        for name, _, its in subject.arguments
        if its.value is not None and name in names
    }
    for constraint in subject.whole.constraints if subject.whole else ():
        number = subject.whole.argument_of(constraint.value) if subject.whole else None
        name, its = of_number.get(-1 if number is None else number, ("", None))
        if its is None or its.sharding is None or its.whole != constraint.value.dimensions:
            continue
        found = _at_once(subject, name, its, constraint)
        if found.promised >= WORTH * subject.space.size:
            yield found
            return


def _at_once(subject: Subject, name: str, its: Layout, constraint: Constraint) -> ShardingFinding:
    assert its.sharding is not None
    dimensions = tuple([size for size in its.whole if size != 1])
    whole = {
        buffer.id: (buffer, its.sharding.replication / layout.replication)
        for buffer, layout in subject.values
        if layout.whole == dimensions and (layout.replication or 1) > its.sharding.replication
        if layout.replication is not None
    }
    spec = its.sharding.spec()
    share = {one: left for one, (_, left) in whole.items()}
    return ShardingFinding(
        kind="gathered",
        title=f"{name} is gathered whole, and kept for the backward pass",
        why=f"the constraint {constraint.sharding.spec()} on {name} {list(its.whole)}, which is"
        f" {spec}, gathers at once what loops read part by part",
        size=max([buffer.size for buffer, _ in whole.values()], default=0),
        promised=promise(subject.memory, subject.space, share),
        source=subject.whole.line(constraint.value) if subject.whole else None,
        names=(name,),
        axes=tuple([axis.name for axis in its.sharding.used]),
        how=f"with_sharding_constraint(x, NamedSharding(mesh, {spec}))",
        change=ShardingChange(
            constraint=spec,
            place=subject.place(constraint.value),
            dimensions=constraint.value.dimensions,
            asked=constraint.sharding.spec(),
            may_be_left_out=not constraint.sharding.used,
        ),
    )


def _kept(subject: Subject) -> Iterator[Kept]:
    """Gathered values that the backward pass reads, and when they are read."""
    memory, turn = subject.memory, _last_forward(subject)
    yield from _stacked(subject)
    for buffer in memory.buffers:
        is_small = buffer.size < _SMALL * subject.space.size
        if is_small or buffer.color != subject.space.color or is_backward(buffer.op_name):
            continue
        one = memory.instruction_by_name.get(buffer.name.partition("{")[0])
        if one is None or one.opcode in ("parameter", "while", "get-tuple-element", "tuple"):
            continue
        argument = find_gathered(memory, one)
        if argument is not None:
            if argument.role == roles.INPUTS or not _is_more(buffer, argument):
                continue
        elif not (buffer.op_name or "").endswith(_BY_HAND):
            continue
        if (steps := _read_at(subject, buffer, turn)) is not None:
            name = buffer.name if argument is None else argument.parameter or argument.name
            yield Kept(buffer, name, steps, buffer.source)


def _stacked(subject: Subject) -> Iterator[Kept]:
    """Stacks of gathered weights, one for each iteration of a loop of the forward pass."""
    memory = subject.memory
    least = _SMALL * subject.space.size
    for buffer in memory.buffers:
        is_stack = buffer.role == roles.STACKED and not is_backward(buffer.op_name)
        if not is_stack or buffer.size < least or buffer.color != subject.space.color:
            continue
        layout = subject.layouts.of(buffer)
        name = None if layout is None else _stacked_argument(subject, layout)
        if name is not None and layout is not None:
            line = _line_stored(subject, buffer, layout)
        elif way := gather_stored(memory, buffer):
            argument = find_argument(memory, way[-1])
            is_by_hand = way[-1].metadata.op_name.endswith(_BY_HAND)
            if argument.role == roles.INPUTS if argument is not None else not is_by_hand:
                continue
            name = (argument.parameter if argument else None) or buffer.name
            line = _line_of_way(subject, way) or buffer.source
        else:
            continue
        for placed in memory.family(memory.joined.placed_by_id[buffer.id]):
            yield Kept(memory.buffer_of(placed), name, (), line)


def _line_of_way(subject: Subject, way: Sequence[HloInstruction]) -> str | None:
    """The line of a gather that the user wrote, or else of what is kept of it."""
    is_by_hand = way[-1].metadata.op_name.endswith(_BY_HAND)
    for one in (way[-1], *way) if is_by_hand else way:
        for index in subject.memory.joined.indices_at.get(one.name, ()):
            for placed in subject.memory.joined.values_at[one.name, index]:
                source = subject.memory.buffer_of(placed).source
                if source and placed.value.name == one.name:
                    return source
    return None


def _stacked_argument(subject: Subject, layout: Layout) -> str | None:
    """The argument, split on devices, of which a stack holds gathered parts."""
    value, whole = layout.value, subject.whole
    if value is None or whole is None or value.instruction.opcode != "dynamic-update-slice":
        return None
    number = whole.argument_of(whole.stored_by(value))
    if number is None:
        return None
    for name, argument, its in subject.arguments:
        is_it = its.value is not None and its.value.instruction is whole.parameters.get(number)
        is_split = (layout.replication or 1) > (its.replication or 1)
        if is_it and is_split and argument.role != roles.INPUTS:
            return name
    return None


def _line_stored(subject: Subject, buffer: Buffer, layout: Layout) -> str | None:
    """The line that computes what a loop stacks."""
    value, whole = layout.value, subject.whole
    if whole is None or value is None or value.instruction.opcode != "dynamic-update-slice":
        return buffer.source
    return whole.line(whole.stored_by(value)) or buffer.source


def _is_more(buffer: Buffer, argument: Buffer) -> bool:
    """Whether a value has more elements than the part of an argument on a device."""
    shapes = [parse_shape_or_none(one.shape) for one in (buffer, argument)]
    if None in shapes:
        return False
    one, other = [prod(shape.dimensions) for shape in shapes if shape is not None]
    return one > other


def _read_at(subject: Subject, buffer: Buffer, turn: int) -> Steps | None:
    """The steps of the forward reads and of the backward reads; None if it is not kept."""
    memory = subject.memory
    if buffer.start is None:
        return None
    times, printed = memory.joined.time_of, memory.joined.printed
    early, late = [int(buffer.start)], list[int]()
    for name in memory.joined.placed_by_id[buffer.id].users:
        if name in times and name in printed:
            operation = printed[name].op_name
            is_late = is_backward(operation) or (
                not is_forward(operation) and times[name] > turn > buffer.start
            )
            (late if is_late else early).append(times[name])
    after = [step for step in late if step > max(early)]
    return ((early[0], max(early)), *[(step, step) for step in after]) if after else None


def _last_forward(subject: Subject) -> int:
    """The last step of the forward pass."""
    joined = subject.memory.joined
    return max(
        [
            joined.time_of[name]
            for name, printed in joined.printed.items()
            if name in joined.time_of and is_forward(printed.op_name)
        ],
        default=0,
    )


def partitioner_warnings(log: str) -> list[str]:
    """The lines of a log by which the partitioner warns of full copies."""
    return [line for line in log.split("\n") if _WARNING in line]


def find_full_reshards(subject: Subject) -> Iterator[ShardingFinding]:
    """Values that are gathered whole, of which each device then takes another part."""
    told = {name: text for text in subject.warnings for name in _NAME.findall(text)}
    found = [(subject.memory.buffer_by_id(one), by) for one, by in subject.resharded.items()]
    share = {buffer.id: _share_left(subject) for buffer, _ in found}
    saved = promise(subject.memory, subject.space, share) if found else 0
    if saved < WORTH * subject.space.size:
        return
    buffer, taker = max(found, key=lambda one: (one[0].size, -(one[0].start or 0)))
    yield from _reshard(subject, buffer, taker, saved, told)


def _share_left(subject: Subject) -> float:
    mesh = subject.layouts.mesh
    return 1 / mesh.size if mesh is not None else 1.0


def _reshard(
    subject: Subject, buffer: Buffer, taker: HloInstruction, saved: int, told: dict[str, str]
) -> Iterator[ShardingFinding]:
    names = [taker.metadata.op_name, buffer.op_name or ""]
    shape = parse_shape_or_none(buffer.shape)
    size = 0 if shape is None else prod(shape.dimensions)
    values = [one for name in names for one in _whole_of(subject, name)]
    whole = [one for one in values if prod(one.dimensions) == size]
    value = next(iter(whole or values), None)
    warning = next((told[name] for name in names if name in told), next(iter(told.values()), ""))
    for number, at in enumerate(_places_to_reshard(subject, value)):
        before = source_sharding(subject, at) or _split_nearby(subject, at)
        kept = "" if before is None else before.spec()
        asked = subject.whole.sharding_of(at.instruction) if subject.whole and at else None
        line = subject.whole.line(at) if at is not None and subject.whole else buffer.source
        is_whole = asked is not None and not asked.used
        dimensions, written = subject.asked_at(at)
        yield ShardingFinding(
            kind="stack" if is_whole and at and stacked_length(at) > 1 else "reshard",
            title=f"{format_bytes(buffer.size)} on each device: gathered whole, then split again",
            why=f"{buffer.name} is the whole array; each device then keeps one part of it"
            + (": XLA calls this an involuntary full rematerialization" if warning else ""),
            size=buffer.size,
            promised=saved,
            source=line,
            names=(buffer.name,),
            axes=(),
            how=f"with_sharding_constraint(x, NamedSharding(mesh, {kept}))"
            if kept
            else "ask for a sharding that splits the same dimension as before",
            change=ShardingChange(
                constraint=kept,
                through=() if before is None or asked is None else steps_between(before, asked),
                place=subject.place(at) if at else None,
                dimensions=dimensions,
                asked=written,
                may_be_left_out=is_whole,
            ),
            warning=warning.strip(),
            is_other=number > 0,
        )


def _split_nearby(subject: Subject, value: WholeValue | None) -> Sharding | None:
    """The sharding that the nearest constraint splits an array of a value's shape by."""
    if value is None or subject.whole is None:
        return None
    near = [one for _, one in near_constraints(subject.whole, value)]
    same = [one.sharding for one in near if one.value.dimensions == value.dimensions]
    return next((sharding for sharding in same if sharding.used), None)


def _places_to_reshard(
    subject: Subject, value: WholeValue | None
) -> list[WholeValue] | list[WholeValue | None]:
    """Constraints that may ask for a way through the whole array, the likeliest first.

    One that asks for the whole array, one that is several moves from what was before, and others;
    of each the nearest. Without any, the value itself.
    """
    if value is None or subject.whole is None:
        return [value]
    found: dict[Place | None, tuple[int, int, WholeValue]] = {}
    for steps, constraint in near_constraints(subject.whole, value):
        at = constraint.value
        ratio = prod(at.dimensions) / prod(value.dimensions)
        if not 1 / _JOINED <= ratio <= _JOINED or "transpose(" in at.op_name:
            continue
        before = source_sharding(subject, at)
        is_far = before is not None and bool(steps_between(before, constraint.sharding))
        rank = 0 if not constraint.sharding.used else 1 if is_far else 2
        rank += 0 if ratio == 1 else _MAX_PLACES
        found.setdefault(subject.place(at), (rank, steps, at))
    best = sorted(found.values(), key=lambda one: one[:2])
    return [at for _, _, at in best[:_MAX_PLACES]] or [value]


def _whole_of(subject: Subject, name: str) -> list[WholeValue]:
    return subject.whole.by_name.get(name, [])[:1] if subject.whole is not None and name else []


def steps_between(before: Sharding, asked: Sharding) -> tuple[str, ...]:
    """Shardings from one to another that each move axes of one dimension; the last not.

    An all-to-all can: axes move that are the last of theirs, to where those before are already.
    """
    rank = max(len(before.dimensions), len(asked.dimensions))
    rows = [_row(before, at) for at in range(rank)]
    steps = [before.spec()]
    for _ in before.used:
        moves = [
            (at, to, count)
            for count in range(1, len(before.used) + 1)
            for at in range(rank)
            for to in range(rank)
            if at != to
            and len(rows[at]) >= count
            and _row(asked, to)[: len(rows[to]) + count] == (*rows[to], *rows[at][-count:])
        ]
        if not moves:
            break
        at, to, count = moves[0]
        rows[to], rows[at] = (*rows[to], *rows[at][-count:]), rows[at][:-count]
        steps.append(type(before)(before.mesh, tuple(rows)).spec())
    is_there = steps[-1] == asked.spec()
    return tuple(steps[:-1]) if is_there and len(steps) > _ONE_MOVE else ()


def _row(sharding: Sharding, at: int) -> tuple[Axis, ...]:
    return sharding.dimensions[at] if at < len(sharding.dimensions) else ()


def source_sharding(subject: Subject, value: WholeValue | None) -> Sharding | None:
    """The sharding that the value's first operand has, where one is written."""
    if value is None or subject.whole is None:
        return None
    pending, hops = list(value.instruction.operands), 0
    while pending and hops < _MAX_HOPS:
        one, hops = pending.pop(0), hops + 1
        sharding = subject.whole.sharding_of(one)
        if sharding is not None and len(one.shape.dimensions) == len(value.dimensions):
            return sharding
        pending += list(one.operands)[:2]
    return None
