"""Findings on arguments and results: replicated, unlike their parameter, donated for nothing."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.hlo.sharding import parse_spec
from hlomem.report.data import roles
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.peers import Peers
from hlomem.report.data.sharding.promise import promise
from hlomem.report.data.sharding.subject import top_of
from hlomem.report.data.sharding.values import (
    WORTH,
    Held,
    is_partial,
    split_further,
    values_along,
)
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.sharding import Axis, Sharding
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.finding import FindingKind, Place
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject

_DROPPED = "the function that makes its sharding leaves out axes that do not divide it"
_MAX_NAMED = 4
_PADDED = 1.25
_MATRIX = 2
_MAX_CODE = 8
_FEW = 0.02
"""The share of the largest saving of a group below which an argument of it is not told."""


Rest: TypeAlias = "tuple[str, tuple[int, ...], str]"
"""The path of an array in its tree, its shape and its sharding."""


class Wish(NamedTuple):
    """An argument, and the sharding it could have."""

    kind: FindingKind
    name: str
    buffer: Buffer
    layout: Layout
    wanted: Sharding
    like: str = ""
    """The argument whose sharding is wanted."""
    other: Sharding | None = None
    """Another sharding that leaves as little."""

    @property
    def share(self) -> float:
        """The share of its bytes that is left."""
        assert self.layout.sharding is not None
        wanted, now = self.wanted.replication, self.layout.sharding.replication
        return wanted / now

    @property
    def axes(self) -> tuple[Axis, ...]:
        assert self.layout.sharding is not None
        free = {axis.name for axis in self.layout.sharding.free}
        return tuple([axis for axis in self.wanted.used if axis.name in free])

    @property
    def saves(self) -> float:
        return self.buffer.size * (1 - self.share)


def find_in_arguments(subject: Subject) -> Iterator[ShardingFinding]:
    """Findings on arguments, and on results that are not sharded like theirs."""
    groups: dict[tuple[FindingKind, str], list[Wish]] = defaultdict(list)
    for wish in _wishes(subject):
        groups[wish.kind, top_of(wish.name)].append(wish)
    for (kind, _), wishes in _joined(groups).items():
        most = max(wish.saves for wish in wishes)
        large = [wish for wish in wishes if wish.saves >= _FEW * most]
        if sum(wish.saves for wish in large) >= WORTH * subject.space.size:
            yield finding_on(subject, kind, large, {wish.name: wish.saves for wish in wishes})


def _joined(
    groups: Mapping[tuple[FindingKind, str], list[Wish]],
) -> dict[tuple[FindingKind, str], list[Wish]]:
    """Groups, each with those trees that repeat it: a part of another, array by array.

    A sharding that is missing for a parameter is missing for what an optimizer keeps of it.
    """
    found: dict[tuple[FindingKind, str], list[Wish]] = {}
    order = sorted(groups, key=lambda key: -sum(wish.saves for wish in groups[key]))
    for kind, tree in order:
        own = groups[kind, tree]
        like = [key for key in found if key[0] == kind and _repeats(own, found[key])]
        if like:
            found[like[0]] += own
        else:
            found[kind, tree] = list(own)
    return found


def _repeats(some: Sequence[Wish], others: Sequence[Wish]) -> bool:
    """Whether arrays of one tree are called and sharded as those of another."""
    known = [_rest(wish) for wish in others]
    large = [wish for wish in some if wish.saves >= _FEW * max(one.saves for one in some)]
    return all(any(_is_same(_rest(wish), one) for one in known) for wish in large)


def _is_same(one: Rest, other: Rest) -> bool:
    """Whether shapes and shardings are equal, and one path ends as the other."""
    (path, *its), (longer, *others) = sorted((one, other), key=lambda rest: len(rest[0]))
    return its == others and path != "" and longer.endswith(path)


def _rest(wish: Wish) -> Rest:
    assert wish.layout.sharding is not None
    path = wish.name[len(top_of(wish.name)) :]
    return path, wish.layout.whole, wish.layout.sharding.spec()


def _wishes(subject: Subject) -> Iterator[Wish]:
    peers = Peers(subject)
    for name, buffer, layout in subject.arguments:
        sharding = layout.sharding
        if sharding is None or not sharding.free:
            continue
        if (model := _parameter_of(subject, name, buffer, layout)) is not None:
            like, its = model
            if its.replication < sharding.replication:
                yield Wish("optimizer", name, buffer, layout, its, like)
                continue
        meant = _meant(subject, name, sharding)
        axes = peers.axes_for(name, buffer, layout)
        if meant is not None:
            axes = [axis for axis in meant.used if axis in sharding.free]
        wanted = split_further(sharding, layout.whole, axes) or meant
        if wanted is not None:
            often = subject.layouts.written
            other = split_further(sharding, layout.whole, axes, is_spread=True, written=often)
            wish = Wish("replicated", name, buffer, layout, wanted, other=other)
            may_be = subject.left_out is None and subject.may_be_left_out(
                name, layout.whole, wish.axes
            )
            if meant or may_be:
                yield wish._replace(kind="dropped")
            elif not _is_returned_in_parts(subject, name, layout):
                yield wish


def _meant(subject: Subject, name: str, now: Sharding) -> Sharding | None:
    """The sharding that an argument was meant to have, if its axes divided its size."""
    specs = subject.left_out.specs if subject.left_out is not None else {}
    meant = parse_spec(specs.get(name, ""), now.mesh)
    return meant if meant and set(meant.used) - set(now.used) else None


def _is_returned_in_parts(subject: Subject, name: str, layout: Layout) -> bool:
    """Whether an argument is donated for a result that is asked to be split more: it is lost."""
    lost = _lost_donation(subject, name, layout) if subject.is_donated(name) else None
    if lost is None or not lost.is_split_more:
        return False
    return (
        subject.is_result_fixed(lost.result)
        or subject.constraint_of_result(lost.result) is not None
    )


def _parameter_of(
    subject: Subject, name: str, buffer: Buffer, layout: Layout
) -> tuple[str, Sharding] | None:
    """The model's parameter that optimizer state belongs to, by its path and shape."""
    is_state = buffer.role in (roles.OPTIMIZER, roles.ARGUMENTS, roles.WEIGHTS)
    if not is_state or subject.is_learned(name, buffer) or len(layout.whole) < _MATRIX:
        return None
    models = [
        (_shared_end(name, other), other, its.sharding)
        for other, its_buffer, its in subject.arguments
        if other != name and its.whole == layout.whole and subject.is_learned(other, its_buffer)
    ]
    found = max(models, key=lambda model: model[0], default=None)
    if found is None or found[2] is None:
        return None
    return found[1], found[2]


def _shared_end(one: str, other: str) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def finding_on(
    subject: Subject, kind: FindingKind, wishes: list[Wish], group: Mapping[str, float]
) -> ShardingFinding:
    """A finding on the large arguments of a group."""
    wishes.sort(key=lambda wish: -wish.saves)
    results = dict(_followers(subject, wishes))
    share = {wish.buffer.id: wish.share for wish in wishes}
    share |= {buffer.id: left for buffer, left, _ in results.values()}
    for wish in wishes if kind != "optimizer" else ():
        share |= {found.buffer.id: found.share for found in follow(subject, wish)}
    size = sum(wish.buffer.size for wish in wishes)
    axes = tuple(dict.fromkeys([axis.name for wish in wishes for axis in wish.axes]))
    specs = {wish.name: wish.wanted.spec() for wish in wishes}
    others = specs | {wish.name: wish.other.spec() for wish in wishes if wish.other is not None}
    line = subject.line_of_arguments(group)
    returned = {name: spec for name, (_, _, spec) in results.items()}
    fixed = {name: spec for name, spec in returned.items() if subject.is_result_fixed(name)}
    return ShardingFinding(
        kind=kind,
        title=_title(kind, wishes, size, axes),
        why=_why(wishes[0]) + (f"; {_DROPPED}" if kind == "dropped" else ""),
        size=size,
        promised=promise(subject.memory, subject.space, share),
        source=line or subject.first_use(wishes[0].buffer),
        names=tuple([wish.name for wish in wishes]),
        axes=axes,
        how=code_of(specs, fixed),
        change=ShardingChange(
            arguments=specs,
            other_arguments={} if others == specs else others,
            results=fixed,
            pins=tuple(_pins(subject, wishes[0])),
        ),
    )


def _pins(subject: Subject, wish: Wish) -> Iterator[Place]:
    """Constraints that keep the values of an argument's shape as whole as it is now."""
    found: dict[Place, None] = {}
    for constraint in subject.whole.constraints if subject.whole else ():
        is_same = constraint.value.dimensions == wish.layout.whole
        if is_same and constraint.sharding.replication > wish.wanted.replication:
            place = subject.place(constraint.value)
            found.update({place: None} if place is not None else {})
    yield from found


def follow(subject: Subject, wish: Wish) -> Iterator[Held]:
    """Values that are split as an argument is, once it is."""
    if subject.is_input(wish.name, wish.buffer):
        for axis in wish.axes:
            yield from values_along(subject, axis)
        return
    for buffer, layout in subject.values:
        sharding = layout.sharding
        is_same = layout.whole == tuple([size for size in wish.layout.whole if size != 1])
        if not is_same or sharding is None or is_partial(subject, buffer):
            continue
        if sharding.replication > wish.wanted.replication:
            yield Held(buffer, layout, wish.wanted)


def _followers(
    subject: Subject, wishes: Sequence[Wish]
) -> Iterator[tuple[str, tuple[Buffer, float, str]]]:
    """Results that are new versions of the arguments, with what is left of them."""
    taken: set[str] = set()
    for wish in wishes:
        spec, local = wish.wanted.spec(), wish.wanted.shard(wish.layout.whole)
        for name, buffer, layout in subject.results:
            if name in taken or layout.sharding is None or layout.whole != wish.layout.whole:
                continue
            is_own = subject.is_update(wish.name, name)
            left = min(1.0, wish.wanted.replication / layout.sharding.replication)
            if subject.is_donated(wish.name) and buffer.parameter is None:
                # One of them takes the memory of the argument then.
                if is_own or layout.local == local:
                    taken.add(name)
                    yield name, (buffer, 0.0, spec)
                    break
            elif is_own and left < 1.0:
                taken.add(name)
                yield name, (buffer, left, spec)
                break


def _title(kind: FindingKind, wishes: Sequence[Wish], size: int, axes: Sequence[str]) -> str:
    names = ", ".join([wish.name for wish in wishes[:_MAX_NAMED]])
    if more := len(wishes) - _MAX_NAMED:
        names += f" and {plural(more, 'other')}" if more > 0 else ""
    first = wishes[0]
    if kind == "optimizer":
        return f"{names}: {format_bytes(size)} on each device, not split as {first.like}"
    over = " and ".join(axes)
    return f"{names}: {format_bytes(size)} on each device, the same along {over}"


def _why(wish: Wish) -> str:
    assert wish.layout.sharding is not None
    now, wanted = wish.layout.sharding, wish.wanted
    words = f"{wish.name} {list(wish.layout.whole)} is {now.spec()}, on {now.replication} devices"
    if wish.like:
        return f"{words} each part; {wish.like} is {wanted.spec()}"
    parts = " and ".join(
        [f"{axis.name} ({axis.size}) divides {wish.layout.whole[at]}"
         for at, axes in enumerate(wanted.dimensions) for axis in axes if axis in wish.axes]
    )  # fmt: skip
    return f"{words} each part; {parts}: {wanted.spec()}"


def code_of(arguments: Mapping[str, str], results: Mapping[str, str]) -> str:
    """Shardings to write, by argument and result."""
    lines = [f"{name}: NamedSharding(mesh, {spec})" for name, spec in arguments.items()]
    more = [f"{plural(len(lines) - _MAX_CODE, 'more argument')}"] if len(lines) > _MAX_CODE else []
    code = ["in_shardings, or where the argument is made:", *lines[:_MAX_CODE], *more]
    code = code if lines else []
    if results:
        code.append("out_shardings:")
        code += [f"{name}: NamedSharding(mesh, {spec})" for name, spec in results.items()][
            :_MAX_CODE
        ]
    return "\n".join(code)


def find_lost_donations(
    subject: Subject, known: Sequence[ShardingFinding]
) -> Iterator[ShardingFinding]:
    """Donated arguments whose result, of the same whole shape, is sharded differently."""
    told = {name for finding in known for name in finding.names}
    groups: dict[tuple[str | None, str], list[Lost]] = defaultdict(list)
    for name, _, layout in subject.donated:
        lost = _lost_donation(subject, name, layout) if name not in told else None
        if lost is not None:
            groups[subject.result_line(lost.result), top_of(name)].append(lost)
    for group in groups.values():
        if sum(lost.buffer.size for lost in group) >= WORTH * subject.space.size:
            group.sort(key=lambda lost: -lost.buffer.size)
            finding = _lost(subject, group)
            yield finding
            if all(lost.is_split_more for lost in group):
                yield _given_otherwise(subject, group, finding)


class Lost(NamedTuple):
    """A donated argument, and its result that is sharded differently."""

    argument: str
    wanted: Sharding
    """The sharding of the argument."""
    result: str
    buffer: Buffer
    layout: Layout

    @property
    def is_split_more(self) -> bool:
        """Whether the result has less on a device than the argument."""
        whole = self.layout.whole
        return prod(self.layout.local) < prod(self.wanted.shard(whole))


def _lost_donation(subject: Subject, name: str, layout: Layout) -> Lost | None:
    """A donated argument with its result, where these are sharded differently."""
    for result, its_buffer, its in subject.results if layout.sharding is not None else ():
        if (
            its.whole == layout.whole
            and its.local != layout.local
            and its.sharding is not None
            and subject.is_update(name, result)
        ):
            assert layout.sharding is not None
            return Lost(name, layout.sharding, result, its_buffer, its)
    return None


def _given_otherwise(
    subject: Subject, group: Sequence[Lost], finding: ShardingFinding
) -> ShardingFinding:
    """The same where the argument is at fault, which could be split as its result is."""
    specs = {
        lost.argument: lost.layout.sharding.spec()
        for lost in group
        if lost.layout.sharding is not None
    }
    sizes = {lost.argument: float(lost.buffer.size) for lost in group}
    return replace(
        finding,
        source=subject.line_of_arguments(sizes) or finding.source,
        how=code_of(specs, {}),
        change=ShardingChange(arguments=specs),
        is_other=True,
    )


def _lost(subject: Subject, group: Sequence[Lost]) -> ShardingFinding:
    first = group[0]
    assert first.layout.sharding is not None
    now, wanted = first.layout.sharding.spec(), first.wanted.spec()
    given = list(first.wanted.shard(first.layout.whole))
    specs = {lost.result: lost.wanted.spec() for lost in group}
    share: dict[ValueId, float] = {}
    for lost in group:
        share |= _none_left(subject, lost.buffer, lost.layout)
    is_constrained = subject.constraint_of_result(first.result) is not None
    more = f", and {plural(len(group) - 1, 'other')}" if len(group) > 1 else ""
    return ShardingFinding(
        kind="donated",
        title=f"{first.argument} is donated as {wanted}, {first.result} is returned as {now}{more}",
        why="a result takes the memory of a donated argument only if both have the same shape on"
        f" a device: {given} and {list(first.layout.local)}",
        size=sum(lost.buffer.size for lost in group),
        promised=promise(subject.memory, subject.space, share),
        source=subject.result_line(first.result),
        names=tuple([name for lost in group for name in (lost.argument, lost.result)]),
        axes=tuple([axis.name for axis in first.wanted.used]),
        how=code_of({}, specs),
        change=ShardingChange(
            results=specs,
            constraint=wanted if is_constrained else "",
            place=subject.place_of_result(first.result) if is_constrained else None,
        ),
    )


def _none_left(subject: Subject, buffer: Buffer, layout: Layout) -> dict[ValueId, float]:
    """A result and the values of its shape, which only bring it into another sharding.

    A result that has the memory of an argument all the same keeps it.
    """
    whole = tuple([size for size in layout.whole if size != 1])
    alike = {one.id: 0.0 for one, its in subject.values if its.whole == whole}
    return alike if buffer.parameter is not None else {**alike, buffer.id: 0.0}


def find_in_results(
    subject: Subject, known: Sequence[ShardingFinding]
) -> Iterator[ShardingFinding]:
    """Results that lie on devices more than once though no argument asks for it.

    Those that one line returns whole in one tree are one.
    """
    groups: dict[tuple[str | None, str], list[Whole]] = defaultdict(list)
    told = {name for finding in known for name in (*finding.names, *finding.change.results)}
    for name, buffer, layout in subject.results:
        sharding = layout.sharding
        if sharding is None or name in told or buffer.size < WORTH * subject.space.size:
            continue
        if buffer.parameter is not None or subject.has_local_argument(name, layout):
            continue
        is_doubted = not sharding.used or _is_gathered(subject, buffer)
        wanted = split_further(sharding, layout.whole) if is_doubted else None
        constraint = subject.constraint_of_result(name)
        if constraint is not None and constraint.replication < sharding.replication:
            yield _dropped_result(subject, name, buffer, layout, constraint)
        elif wanted is not None:
            whole = Whole(name, buffer, layout, wanted)
            groups[subject.result_line(name), tree_of(name)].append(whole)
    for (line, _), group in groups.items():
        group.sort(key=lambda whole: -whole.buffer.size)
        yield _whole_results(subject, line, group)


def _is_gathered(subject: Subject, result: Buffer) -> bool:
    """Whether a result is gathered right before it is returned."""
    makers = (result, *subject.memory.operands(result))
    return any((one.opcode or "").startswith("all-gather") for one in makers)


class Whole(NamedTuple):
    """A result that is whole on every device, and the sharding it could have."""

    name: str
    buffer: Buffer
    layout: Layout
    wanted: Sharding


def tree_of(result: str) -> str:
    """The part of what the function returns that a result is in: `result[1]`."""
    return result.partition("]")[0].partition(".")[0]


def alike_in(subject: Subject, buffer: Buffer, layout: Layout, left: float) -> dict[ValueId, float]:
    """A result and the values of its shape that are as whole, with what is left of them."""
    whole = tuple([size for size in layout.whole if size != 1])
    found = {
        one.id: left
        for one, its in subject.values
        if its.whole == whole and its.replication == layout.replication
    }
    joined = {one.id: left for one in subject.memory.operands(buffer) if _is_near(one, buffer)}
    return {**joined, **found, buffer.id: left}


def _is_near(one: Buffer, other: Buffer) -> bool:
    """Whether a value is a collective's, and as large as another but for padding."""
    return one.role == roles.COLLECTIVES and 1.0 <= one.size / max(other.size, 1) < _PADDED


def _whole_results(subject: Subject, line: str | None, group: Sequence[Whole]) -> ShardingFinding:
    name, _, layout, wanted = group[0]
    assert layout.sharding is not None
    share: dict[ValueId, float] = {}
    for one in group:
        assert one.layout.sharding is not None
        left = one.wanted.replication / one.layout.sharding.replication
        share |= alike_in(subject, one.buffer, one.layout, left)
    size = sum(one.buffer.size for one in group)
    specs = {one.name: one.wanted.spec() for one in group}
    more = f" and {plural(len(group) - 1, 'other')}" if len(group) > 1 else ""
    return ShardingFinding(
        kind="replicated",
        title=f"{name}{more}: {format_bytes(size)} on each device, returned whole",
        why=f"{name} {list(layout.whole)} is {layout.sharding.spec()}; {wanted.spec()} divides it",
        size=size,
        promised=promise(subject.memory, subject.space, share),
        source=line,
        names=tuple(specs),
        axes=tuple([axis.name for axis in layout.sharding.free]),
        how=code_of({}, specs),
        change=ShardingChange(results=specs),
    )


def _dropped_result(
    subject: Subject, name: str, buffer: Buffer, layout: Layout, asked: Sharding
) -> ShardingFinding:
    assert layout.sharding is not None
    uneven = [
        f"{size} is not divisible by {asked.split_of(at)}"
        for at, size in enumerate(layout.whole)
        if size % asked.split_of(at)
    ]
    reason = " and ".join(uneven) or "another constraint or the result's own sharding overrides it"
    other = split_further(layout.sharding, layout.whole)
    left = 1.0 if other is None else other.replication / layout.sharding.replication
    share = alike_in(subject, buffer, layout, left)
    for axis in other.used if other is not None else ():
        share |= {found.buffer.id: found.share for found in values_along(subject, axis)}
    spec = "" if other is None else other.spec()
    return ShardingFinding(
        kind="dropped",
        title=f"{asked.spec()} has no effect on {name}: {format_bytes(buffer.size)} on each device",
        why=f"{name} {list(layout.whole)} comes back as {layout.sharding.spec()}: {reason}",
        size=buffer.size,
        promised=promise(subject.memory, subject.space, share),
        source=subject.result_line(name),
        names=(name,),
        axes=tuple([axis.name for axis in asked.used]),
        how=f"with_sharding_constraint(x, NamedSharding(mesh, {spec}))"
        if spec
        else f"pad {name} to a multiple of {max(map(asked.split_of, range(len(layout.whole))))}",
        change=ShardingChange(constraint=spec, place=subject.place_of_result(name)),
    )
