"""The changes that a finding on shardings asks for: other arguments and results, edited sources.

In: a finding and its program. Out: `Change`s, of which each is compiled; none writes a file.
"""

from __future__ import annotations

from contextlib import suppress
from math import lcm
from typing import TYPE_CHECKING

from hlomem.advice.code import DROPPING_POLICY, DROPS_GATHERED
from hlomem.base.errors import CommandError
from hlomem.hlo.sharding import parse_spec
from hlomem.jax.trials.changes import Change, Policy, other_policies, wrap_layers_by
from hlomem.jax.trials.constraint_source import use_constraints
from hlomem.jax.trials.decided import LINK
from hlomem.jax.trials.source_edits import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.jax.trials.source_edits import Edit
    from hlomem.report.data.sharding.finding import Place, ShardingChange, ShardingFinding
    from hlomem.report.data.sharding.subject import Subject


def changes_of(
    finding: ShardingFinding, planned: PlannedProgram, subject: Subject
) -> Iterator[Change]:
    """The changes of a finding, each to be compiled apart."""
    wanted = finding.change
    if is_of_steps(finding):
        return  # with the constraints in the loop, which are not edited
    title = f"the shardings of {finding.names[0] if finding.names else finding.kind}"
    for arguments in (wanted.arguments, wanted.other_arguments):
        if arguments or (wanted.results and arguments is wanted.arguments):
            change = Change("shard", title, "", LINK, arguments=tuple(arguments.items()))
            yield change._replace(results=tuple(_results(wanted, arguments).items()))
            if pinned := _unpinned(wanted, next(iter(arguments.values()), "")):
                results = tuple(_results(wanted, arguments).items())
                yield change._replace(results=results, edits=tuple(pinned))
    for specs in ((wanted.constraint,), wanted.through, *[(one,) for one in wanted.alternatives]):
        is_before = specs is wanted.through
        edits, has_mesh = _constrained(wanted.place, specs, is_before=is_before)
        if edits:
            change = Change("shard", title, "", LINK, edits=tuple(edits), has_mesh=has_mesh)
            yield change
            if not is_before and (more := _unpinned(wanted, specs[0], has_mesh=has_mesh)):
                yield change._replace(edits=tuple(dict.fromkeys([*edits, *more])))
    for edits in _left_out(wanted) if wanted.may_be_left_out else ():
        yield Change("shard", title, "", LINK, edits=tuple(edits))
    if finding.kind == "dropped":
        yield from _evened(finding, planned, subject)
    if wanted.is_assigned and wanted.place is not None:
        edits = use_constraints(SourceFile(wanted.place.file), wanted.place.line)
        yield Change("shard", title, "", LINK, edits=tuple(edits))
    if wanted.drops_gathered:
        policy = Policy(DROPS_GATHERED, DROPPING_POLICY)
        yield from wrap_layers_by(planned.memory.memory, planned.facts, policy)
        yield from other_policies(_file_of(finding))


def is_of_steps(finding: ShardingFinding) -> bool:
    """Whether it is on a result that a loop stacks, with what constrains the parts."""
    return finding.kind == "stack" and bool(finding.change.results)


def even_sizes(finding: ShardingFinding, subject: Subject) -> Mapping[int, int]:
    """Sizes of dimensions that the devices do not divide, and the next that they do."""
    return {size: size + -size % many for size, many in divisors(finding, subject).items()}


def divisors(finding: ShardingFinding, subject: Subject) -> Mapping[int, int]:
    """Sizes that are not divided, and what is to divide them: as meant, or every axis."""
    mesh = subject.layouts.mesh
    if mesh is None:
        return {}
    every = lcm(*[axis.size for axis in mesh.axes])
    meant = subject.left_out.specs if subject.left_out is not None else {}
    found: dict[int, int] = {}
    for name, _, layout in subject.arguments:
        if name in finding.change.arguments or name in finding.names:
            spec = parse_spec(meant.get(name, ""), mesh)
            for at, size in enumerate(layout.whole):
                found[size] = lcm(every, 1 if spec is None else spec.split_of(at))
    found |= {size: every for size in finding.change.dimensions if size not in found}
    return {size: many for size, many in found.items() if size % many and size > many}


def _evened(
    finding: ShardingFinding, planned: PlannedProgram, subject: Subject
) -> Iterator[Change]:
    """A size that no axis divides made one that they do, where it is written once."""
    names = [line.rpartition(":")[0] for line in _lines_of(finding, planned)]
    files = _readable(dict.fromkeys(names))
    for size, many in divisors(finding, subject).items():
        even = size + -size % many
        edits = [(file, edit) for file in files for edit in file.other_numbers(size, even)]
        edits = edits or list(_rounded(subject, size, many))
        if len(edits) == 1:
            [(file, edit)] = edits
            cost = f"{even} instead of {size}: what is added has to count for nothing"
            title, at = f"{even} instead of {size}", f"{file.file}:{file.line_of(edit)}"
            yield Change("shard", title, cost, LINK, edits=(edit,), at=at)


def _rounded(subject: Subject, size: int, many: int) -> Iterator[tuple[SourceFile, Edit]]:
    """The expressions that a size is computed by, rounded up to what the devices divide."""
    sums = subject.left_out.sums if subject.left_out is not None else {}
    for place in sums.get(size, ()):
        for file in _readable([place.file]):
            edit = file.rounded_up(place, many)
            yield from [(file, edit)] if edit is not None else []


def _lines_of(finding: ShardingFinding, planned: PlannedProgram) -> Iterator[str]:
    """The lines that lead to a finding, and those that make and place arguments."""
    yield from [finding.source or "", *[link.line for link in finding.chain]]
    for at in planned.facts.argument_lines.values():
        yield from (*at.made, *at.sharding, *at.written)


def _readable(names: Iterable[str]) -> list[SourceFile]:
    found = []
    for name in names:
        with suppress(CommandError):
            found.append(SourceFile(name))
    return found


def _left_out(wanted: ShardingChange) -> Iterator[list[Edit]]:
    """The edits that leave out the constraint at a place; then with those that ask for the same."""
    places = [place for place in (wanted.place, *wanted.pins) if place is not None]
    edits = []
    for place in places:
        try:
            edit = SourceFile(place.file).leave_out(place)
        except CommandError:
            continue
        edits += [edit] if edit is not None else []
    yield from [edits[:1]] if edits else []
    yield from [edits] if len(edits) > 1 else []


def _file_of(finding: ShardingFinding) -> list[SourceFile]:
    return _readable([(finding.source or "").rpartition(":")[0]])


def _results(wanted: ShardingChange, arguments: Mapping[str, str]) -> dict[str, str]:
    """The shardings of results, which follow their arguments into other ones."""
    moved = {spec: arguments[name] for name, spec in wanted.arguments.items() if name in arguments}
    return {name: moved.get(spec, spec) for name, spec in wanted.results.items()}


def _unpinned(wanted: ShardingChange, spec: str, *, has_mesh: bool = False) -> list[Edit]:
    """The edits that bring constraints on the same values into their new sharding."""
    edits = [_constrained(place, (spec,)) for place in wanted.pins if spec]
    return list(dict.fromkeys([one for some, needs in edits if needs == has_mesh for one in some]))


def _constrained(
    place: Place | None, specs: Sequence[str], *, is_before: bool = False
) -> tuple[list[Edit], bool]:
    """The edits that put constraints on the value at a place, and whether a mesh is set for them.

    Where no mesh is known by name at the line, a constraint is by P alone, under jax.set_mesh.
    With `is_before` the value is given these shardings before the one it has.
    """
    if place is None or not any(specs):
        return [], False
    try:
        file = SourceFile(place.file)
    except CommandError:
        return [], False
    mesh = file.mesh_at(place.line)
    name, imports = file.name_of("jax.sharding.PartitionSpec")
    shardings = [f"{name}{spec.removeprefix('P')}" for spec in specs]
    if mesh:
        named, more = file.name_of("jax.sharding.NamedSharding")
        shardings = [f"{named}({mesh}, {one})" for one in shardings]
        imports = [*imports, *more]
    edit = (
        file.constrain_before(place, shardings)
        if is_before
        else file.constrain(place, shardings[0])
    )
    return ([], False) if edit is None else ([*file.name_of("jax")[1], *imports, edit], not mesh)
