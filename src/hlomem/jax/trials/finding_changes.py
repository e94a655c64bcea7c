"""The changes that a finding on shardings asks for: other arguments and results, edited sources.

In: a finding and its program. Out: `Change`s, of which each is compiled; none writes a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.code import DROPPING_POLICY, DROPS_GATHERED
from hlomem.base.errors import CommandError
from hlomem.jax.trials.changes import Change, Policy, other_policies, wrap_layers_by
from hlomem.jax.trials.constraint_source import use_constraints
from hlomem.jax.trials.decided import LINK
from hlomem.jax.trials.source_edits import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.jax.trials.source_edits import Edit
    from hlomem.report.data.sharding.finding import Place, ShardingChange, ShardingFinding


def changes_of(finding: ShardingFinding, planned: PlannedProgram) -> Iterator[Change]:
    """The changes of a finding, each to be compiled apart."""
    wanted = finding.change
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
    if wanted.is_assigned and wanted.place is not None:
        edits = use_constraints(SourceFile(wanted.place.file), wanted.place.line)
        yield Change("shard", title, "", LINK, edits=tuple(edits))
    if wanted.drops_gathered:
        policy = Policy(DROPS_GATHERED, DROPPING_POLICY)
        yield from wrap_layers_by(planned.memory.memory, planned.facts, policy)
        yield from other_policies(_file_of(finding))


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
    try:
        return [SourceFile((finding.source or "").rpartition(":")[0])]
    except CommandError:
        return []


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
