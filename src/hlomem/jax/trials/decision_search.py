"""Decisions of a program that may be at fault though its plan does not say so.

In: the decisions that were noted, and what the report knows of the program. Out: findings with the
changes that would clear them, which are made while the program is traced (`decided.py`) and
compiled by the caller.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.hlo.sharding import parse_spec, parts_of
from hlomem.jax.compile.decisions import PARTITIONABLE
from hlomem.jax.trials.decided import (
    is_inside,
    otherwise,
    recomputed_loops,
    told_as,
    told_of_start,
)
from hlomem.report.data import roles
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.gather_findings import steps_between
from hlomem.report.data.sharding.value_findings import idle_axes, input_axes
from hlomem.report.data.sharding.values import WORTH, values_along

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.sharding import Axis, Mesh, Sharding
    from hlomem.jax.trials.changes import Change
    from hlomem.jax.trials.lines import Lines
    from hlomem.report.data.sharding.decision import Decision
    from hlomem.report.data.sharding.finding import FindingKind
    from hlomem.report.data.sharding.subject import Subject

_LARGE = 0.05
"""The share of the memory that arrays of a decision take, so that another is tried."""
_MAX_FOUND = 6
_MUCH = 0.4
"""The share of the memory that a doubt about a choice has to save: that of a stack that is most of
it. Activations are whole along the axis of a model in many programs without a fault."""
_MOVED = 0.25
"""The same for a choice between dimensions of an array, which splits it into as many parts."""
_MAX_WAYS = 3


class Search:
    """Decisions that may be at fault though the plan does not say so."""

    def __init__(self, subject: Subject, decisions: Sequence[Decision], lines: Lines) -> None:
        self._subject = subject
        self._decisions = decisions
        self._lines = lines
        self._has_stacks = any(buffer.role == roles.STACKED for buffer, _ in subject.values)

    def findings(self) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Doubts with the changes that would clear them, the largest first."""
        mesh = self._subject.layouts.mesh
        if mesh is None or self._subject.whole is None:
            return
        found = [*self._left_out(), *self._far(mesh), *self._mapped(mesh), *self._unlike(mesh)]
        found += [*self._between(mesh), *self._carried(mesh), *self._begun()]
        found += [*self._hoisted(mesh), *self._moved(mesh), *self._drawn()]
        found.sort(key=lambda one: -one[0].size)
        yield from found[:_MAX_FOUND]

    def _large(self, kind: str) -> dict[tuple[str, tuple[str, ...]], list[Decision]]:
        """Decisions on large arrays, those of one line that ask for the same together."""
        groups: dict[tuple[str, tuple[str, ...]], list[Decision]] = {}
        for one in self._decisions:
            if one.kind == kind and one.applied:
                lines = tuple([frame.line for frame in one.applied])
                groups.setdefault((one.specs[0] if one.specs else "", lines), []).append(one)
        share = WORTH if kind == "dropped" else _LARGE
        least = share * self._subject.space.size
        return {key: group for key, group in groups.items() if _bytes(group) >= least}

    def _left_out(self) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints that a library left out, all that ask for the same together."""
        by_spec: dict[str, list[Decision]] = {}
        for (spec, _), group in self._large("dropped").items():
            by_spec.setdefault(spec, []).extend(group)
        for spec, group in by_spec.items():
            code = (
                f"a mesh for the library to find, so that this is put:\n{told_as(group, (spec,))}"
            )
            why = "the library that is asked for it does nothing"
            yield self._finding("dropped", group, why), [otherwise(group, (spec,), code)]

    def _far(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints that are several moves away from what arrays of this shape have elsewhere."""
        large = self._large("constraint")
        for (spec, _), group in large.items():
            asked = parse_spec(spec, mesh)
            if asked is None or not asked.used:
                continue
            ways = {
                steps: None
                for peer in self._peers(group[0].shapes[0], mesh)
                if (steps := steps_between(peer, asked))
            }
            changes = [
                otherwise(group, (*steps, spec), told_as(group, (*steps, spec))) for steps in ways
            ]
            if changes:
                why = (
                    f"arrays of this shape are {next(iter(ways))[0]} elsewhere, several moves away"
                )
                yield self._finding("reshard", group, why), changes

    def _between(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints that split less than the next one, which is put on their values."""
        followed: dict[tuple[str, tuple[int, ...]], int] = {}
        for one in self._decisions:
            if one.kind == "constraint" and one.of:
                key = one.of, one.shapes[0]
                followed[key] = max(followed.get(key, 1), parts_of(one.specs[0], mesh))
        for (spec, _), group in self._large("constraint").items():
            if parts_of(spec, mesh) < followed.get((spec, group[0].shapes[0]), 0):
                why = "the next constraint, on its value, splits that more"
                change = otherwise(group, (), told_as(group, ()))
                yield self._finding("reshard", group, why), [change]

    def _carried(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints in the bodies of loops that leave out an axis: what is stacked is whole."""
        loops = [one for one in self._decisions if one.kind == "scan"]
        by_spec: dict[tuple[str, tuple[int, ...]], list[Decision]] = {}
        for one in self._decisions if self._has_stacks else ():
            if one.kind == "constraint" and any(is_inside(one, loop) for loop in loops):
                by_spec.setdefault((one.specs[0], one.shapes[0]), []).append(one)
        for (spec, shape), group in by_spec.items():
            asked = parse_spec(spec, mesh)
            ways = [
                asked.with_axis(at, axis).spec()
                for axis in (() if asked is None else asked.free)
                for at in range(len(shape))[::-1]
                if asked is not None and asked.split_of(at) == 1 and shape[at] % axis.size == 0
            ][:_MAX_WAYS]
            if ways:
                why = f"what the loop stacks is whole along {', '.join(_axes_left(asked))}"
                changes = [otherwise(group, (way,), told_as(group, (way,))) for way in ways]
                finding = self._finding("stack", group, why)
                yield replace(finding, least=_MUCH), changes

    def _drawn(self) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Random numbers of which each device draws all, though it keeps a part."""
        group = [one for one in self._decisions if one.kind == "random"]
        if not group:
            return
        [name] = group[0].specs
        line = self._lines.primary(group[:1])
        asked = f'jax.random.key(…, impl="{PARTITIONABLE}")'
        if name == PARTITIONABLE:
            asked = 'jax.config.update("jax_threefry_partitionable", True)'
        yield (
            ShardingFinding(
                kind="replicated",
                title=f"random numbers that each device draws all of: the generator is {name}",
                why="the partitioner does not split it; another one draws other numbers",
                size=self._subject.space.size,
                promised=0,
                source=line or None,
                chain=self._lines.chain(group[:1], line),
                names=(f"numbers of {name}",),
                how="",
                change=ShardingChange(),
            ),
            [otherwise(group, (PARTITIONABLE,), asked)],
        )

    def _moved(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints that split one dimension, of all of a tree, where another may be meant."""
        for (spec, _), group in self._large("constraint").items():
            asked = parse_spec(spec, mesh)
            shapes = [one.shapes[0] for one in group]
            ways = [
                asked.with_moved(at, to).spec()
                for at, axes in enumerate(asked.dimensions if asked is not None else ())
                for to in range(min(map(len, shapes)))
                if asked is not None and axes and asked.split_of(to) == 1
                if all(shape[to] % asked.split_of(at) == 0 for shape in shapes)
                if self._is_split_elsewhere(shapes, to, axes, group, mesh)
                and not self._is_split_elsewhere(shapes, at, axes, group, mesh)
            ][:_MAX_WAYS]
            if ways:
                kind: FindingKind = "stack" if self._has_stacks else "replicated"
                changes = [otherwise(group, (way,), told_as(group, (way,))) for way in ways]
                finding = self._finding(kind, group, f"with {ways[0]} another dimension is split")
                yield replace(finding, least=_MOVED), changes

    def _is_split_elsewhere(
        self,
        shapes: Sequence[tuple[int, ...]],
        at: int,
        axes: Sequence[Axis],
        group: Sequence[Decision],
        mesh: Mesh,
    ) -> bool:
        """Whether axes split a dimension of the same size of an argument, or by a constraint."""
        sizes = {shape[at] for shape in shapes}
        known = [(its.whole, its.sharding) for _, _, its in self._subject.arguments]
        known += [
            (one.shapes[0], parse_spec(one.specs[0], mesh))
            for one in self._decisions
            if one.kind == "constraint" and one not in group
        ]
        return any(
            size in sizes and at < len(sharding.dimensions) and sharding.dimensions[at] == axes
            for shape, sharding in known
            if sharding is not None
            for at, size in enumerate(shape)
        )

    def _hoisted(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Gathers of all that a loop reads part by part, done in the loop instead."""
        by_loop: dict[tuple[str, ...], list[Decision]] = {}
        for one in self._decisions:
            if one.kind == "hoisted":
                by_loop.setdefault(tuple([frame.line for frame in one.made]), []).append(one)
        for lines, group in by_loop.items():
            size = sum(sum(one.sizes) // _parts_left(one, mesh) for one in group)
            if size < _LARGE * self._subject.space.size:
                continue
            where = {tuple([frame.line for frame in one.applied]) for one in group}
            gathers = [
                one
                for one in self._decisions
                if one.kind in ("gather", "constraint")
                and tuple([frame.line for frame in one.applied]) in where
            ]
            loops = [
                one
                for one in self._decisions
                if one.kind == "scan" and tuple([frame.line for frame in one.applied]) == lines
            ]
            code = f"in the function that the loop at {lines[0]} is given, of each part:\n"
            inside = otherwise(group, (), code + _gather_of(group[0]))
            changes = [inside]
            for again in recomputed_loops(self._decisions, [], loops):
                both = (*inside.decisions, *again.decisions)
                code = f"{inside.code}\n{again.code}"
                changes.append(inside._replace(decisions=both, code=code))
            finding = self._finding("gathered", gathers, "")
            title = f"{format_bytes(size)} on each device, gathered before a loop"
            why = f"the loop at {lines[0]} reads it part by part"
            yield replace(finding, title=title, why=why, size=size), changes

    def _begun(self) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Loops that begin with whole arrays, where what they stack is whole along an axis."""
        loops = [one for one in self._decisions if one.kind == "scan" and one.applied]
        for axis in [*input_axes(self._subject), *idle_axes(self._subject)]:
            stacks = [
                one
                for one in values_along(self._subject, axis)
                if one.buffer.role == roles.STACKED and len(one.layout.whole) > 1
            ]
            size = sum(one.buffer.size for one in stacks)
            lengths = Counter(one.layout.whole[1] for one in stacks)
            length = max(lengths, key=lengths.__getitem__, default=0)
            if size < _LARGE * self._subject.space.size or length % axis.size:
                continue
            for loop in loops:
                along = f"P({axis.name!r})"
                specs = [along if shape[:1] == (length,) else "" for shape in loop.shapes]
                if any(specs):
                    change = otherwise([loop], specs, told_of_start(loop, specs))
                    yield self._finding_on_start(loop, axis, size), [change]

    def _finding_on_start(self, loop: Decision, axis: Axis, size: int) -> ShardingFinding:
        line = self._lines.primary([loop])
        return ShardingFinding(
            kind="stack",
            title=f"a loop that begins with arrays that are whole along {axis.name}",
            why=f"stacks of {format_bytes(size)} on each device are the same along {axis.name}",
            size=size,
            promised=0,
            source=line or None,
            chain=self._lines.chain([loop], line),
            names=("what a loop begins with", axis.name),
            axes=(axis.name,),
            how="",
            change=ShardingChange(),
            least=_MUCH,
        )

    def _unlike(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """Constraints without an axis that others have, which are the same otherwise."""
        by_spec: dict[tuple[str, tuple[int, ...]], list[Decision]] = {}
        for (spec, _), group in self._large("constraint").items():
            by_spec.setdefault((spec, group[0].shapes[0]), []).extend(group)
        for (spec, shape), group in by_spec.items():
            asked = parse_spec(spec, mesh)
            if asked is None or not asked.used:
                continue
            changes: dict[str, Change] = {}
            for axis in asked.free:
                for at in range(len(shape)):
                    wanted = asked.with_axis(at, axis)
                    if asked.split_of(at) == 1 and self._is_elsewhere(wanted, shape, at, mesh):
                        other = wanted.spec()
                        changes[other] = otherwise(group, (other,), told_as(group, (other,)))
            if changes:
                why = f"arrays with a dimension of this size are {next(iter(changes))}"
                yield self._finding("replicated", group, why), list(changes.values())[:_MAX_WAYS]

    def _is_elsewhere(self, wanted: Sharding, shape: tuple[int, ...], at: int, mesh: Mesh) -> bool:
        """Whether a constraint asks for it on another array, with a dimension of the same size."""
        return any(
            len(its) == len(shape)
            and its[at] == shape[at]
            and its != shape
            and (sharding := parse_spec(one.specs[0], mesh)) is not None
            and all(sharding.split_of(n) == wanted.split_of(n) for n in range(len(shape)))
            and set(sharding.used) == set(wanted.used)
            for one in self._decisions
            if one.kind == "constraint"
            for its in one.shapes[:1]
        )

    def _peers(self, shape: tuple[int, ...], mesh: Mesh) -> list[Sharding]:
        """The shardings that arrays of a shape have in constraints and arguments."""
        found: dict[Sharding, None] = {}
        for one in self._decisions:
            if one.kind == "constraint" and one.shapes[0] == shape:
                sharding = parse_spec(one.specs[0], mesh)
                found.update({sharding: None} if sharding is not None else {})
        for _, _, layout in self._subject.arguments:
            if layout.whole == shape and layout.sharding is not None:
                found[layout.sharding] = None
        return [sharding for sharding in found if sharding.used]

    def _mapped(self, mesh: Mesh) -> Iterator[tuple[ShardingFinding, list[Change]]]:
        """A `shard_map` without an axis that splits a dimension of its arrays elsewhere."""
        for group in self._large("shard_map").values():
            first = group[0]
            changes: list[Change] = []
            for spec in dict.fromkeys(first.specs):
                shapes = [
                    one for one, its in zip(first.shapes, first.specs, strict=True) if its == spec
                ]
                sharding = parse_spec(spec, mesh)
                for axis in () if sharding is None else sharding.free:
                    assert sharding is not None
                    changes += self._along(group, spec, sharding, axis, shapes)
            if changes:
                kind: FindingKind = "stack" if self._has_stacks else "replicated"
                yield (
                    self._finding(
                        kind,
                        group,
                        "it leaves out an axis that its arrays are split along elsewhere",
                    ),
                    changes,
                )

    def _along(
        self,
        group: Sequence[Decision],
        spec: str,
        sharding: Sharding,
        axis: Axis,
        shapes: Sequence[tuple[int, ...]],
    ) -> Iterator[Change]:
        """A `shard_map` with one more axis on a dimension that is split along it elsewhere."""
        rank = min(len(shape) for shape in shapes)
        written = self._subject.layouts.written
        fitting = [
            at
            for at in range(rank)
            if sharding.split_of(at) == 1
            and all(
                shape[at] % axis.size == 0 and written.get((shape[at], axis.name), 0)
                for shape in shapes
            )
        ]
        for at in fitting[:_MAX_WAYS]:
            other = f"{spec} -> {sharding.with_axis(at, axis).spec()}"
            code = f"in_specs and out_specs: {other}"
            code += f"\n# as far as the function computes parts along {axis.name} apart"
            yield otherwise(group, (other,), code)

    def _finding(self, kind: FindingKind, group: Sequence[Decision], why: str) -> ShardingFinding:
        first, size, line = group[0], _bytes(group), self._lines.primary(group)
        shape, spec = list(first.shapes[0]), first.specs[0]
        what = "shard_map by" if first.kind == "shard_map" else "the constraint"
        return ShardingFinding(
            kind=kind,
            title=f"{what} {spec} on {shape}",
            why=f"{format_bytes(size)} in all; {why}",
            size=size,
            promised=0,
            source=line or None,
            chain=self._lines.chain(group, line),
            names=(line, spec),
            how="",
            change=ShardingChange(),
        )


def _parts_left(hoisted: Decision, mesh: Mesh) -> int:
    """The parts that a value which was gathered first is still split into."""
    is_constraint = hoisted.specs[0].startswith("P(")
    return parts_of(hoisted.specs[0], mesh) if is_constraint else 1


def _gather_of(hoisted: Decision) -> str:
    """The code that gathers one part."""
    [spec] = hoisted.specs
    if spec.startswith("P("):
        return f"with_sharding_constraint(part, NamedSharding(mesh, {spec} without its first))"
    return f"jax.lax.all_gather(part, {spec}, …)"


def _axes_left(sharding: Sharding | None) -> list[str]:
    return [] if sharding is None else [axis.name for axis in sharding.free]


def _bytes(group: Sequence[Decision]) -> int:
    return sum(sum(one.sizes) for one in group)
