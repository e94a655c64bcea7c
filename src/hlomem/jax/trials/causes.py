"""Findings at the line that decides them, as far as trying other values there tells.

In: findings whose changes were compiled. Out: the same, each at the line of the source where
another value changes the arrays it is about and no others, and saves as much, compiled. A finding
without such a place stays.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.errors import CommandError
from hlomem.jax.compile.decisions import decision_names
from hlomem.jax.probes.deciding import decide
from hlomem.jax.probes.parent import Prober
from hlomem.jax.probes.tries import Fault
from hlomem.jax.trials.finding_changes import divisors, even_sizes, is_of_steps
from hlomem.jax.trials.lines import group_of
from hlomem.jax.trials.source_edits import SourceFile
from hlomem.jax.trials.value_edits import shardings_of, value_changes
from hlomem.report.data.sharding.finding import Link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.jax.compile.messages import Facts, Job
    from hlomem.jax.probes.deciding import Decided
    from hlomem.jax.trials.lines import Lines
    from hlomem.jax.trials.trying import Trials, Tried
    from hlomem.report.data.sharding.finding import ShardingFinding
    from hlomem.report.data.sharding.subject import Subject

_MAX_FOUND = 3
_SECONDS = 300.0
_MAX_LINKS = 6
_MAX_WAYS = 4
_ENOUGH, _AS_MUCH = 0.5, 0.9
"""The shares of what a finding's change saves that another value saves at a line that decides it,
and from which on that is the change to tell."""


def at_deciding_lines(
    trials: Trials,
    job: Job,
    findings: Sequence[ShardingFinding],
    facts: Facts,
    lines: Lines,
    subject: Subject,
) -> list[ShardingFinding]:
    """The findings, the first few of them at the lines that decide them."""
    mesh = subject.layouts.mesh
    faults = [_fault(one, facts, lines, subject) for one in findings[:_MAX_FOUND]]
    if mesh is None or not any(fault.wanted or fault.is_kept for fault in faults):
        return _without_repeats(findings)
    axes = {axis.name: axis.size for axis in mesh.axes}
    with Prober(job, _SECONDS) as prober:
        [base] = prober.trace([("", "")])
        if base is None or base.problem:
            return list(findings)
        placed = []
        for one, fault in zip(findings, faults, strict=False):
            ways = list(islice(decide(prober, base, fault, axes), _MAX_WAYS))
            placed.append(_compiled(trials, one, ways) if ways else _where_cut(one, subject))
    return _without_repeats([*placed, *findings[_MAX_FOUND:]])


def _compiled(trials: Trials, finding: ShardingFinding, ways: Sequence[Decided]) -> ShardingFinding:
    """A finding at the first line whose change, compiled, saves much of what it says.

    At the first of all where none does: that the arrays follow it was seen in a trace. One that
    others follow, too, may have a value that is right for some and not for all: only what could
    be compiled says that it is not the line.
    """
    is_refuted = False
    for way in ways:
        for change in value_changes(way):
            done = trials.try_together((change,))
            is_refuted |= done.found is not None
            if done.found is not None:
                got = trials.base.plan.size - done.size
                if got >= max(_ENOUGH * (finding.got or 0), 1):
                    return _with_change(_placed(finding, way), way, done, got)
                break
    return finding if is_refuted and not ways[0].is_alone else _placed(finding, ways[0])


def _with_change(finding: ShardingFinding, way: Decided, done: Tried, got: int) -> ShardingFinding:
    """A finding with the change of its line, if that saves about as much as the one before."""
    if got < _AS_MUCH * (finding.got or 0):
        return finding
    return replace(finding, got=got, how=done.how(), change=shardings_of(way))


def _where_cut(finding: ShardingFinding, subject: Subject) -> ShardingFinding:
    """A finding on what axes do not divide at the line that makes its size of one that they do."""
    whole = subject.whole
    sizes = divisors(finding, subject) if finding.kind == "dropped" and whole is not None else {}
    for size, many in sizes.items():
        line = whole.line_of_size(size, many) if whole is not None else None
        if line is not None:
            why = f"{finding.why}; {size} is made here of what {many} divides"
            return _moved(replace(finding, why=why), line)
    return finding


def _without_repeats(findings: Sequence[ShardingFinding]) -> list[ShardingFinding]:
    """Without findings of the same kind and line, or on the same arguments, that save the same."""
    told: list[ShardingFinding] = []
    for one in findings:
        if not any(_is_same_matter(one, other) for other in told):
            told.append(one)
    return told


def _is_same_matter(one: ShardingFinding, other: ShardingFinding) -> bool:
    is_same_line = (one.kind, one.source) == (other.kind, other.source)
    shared = one.change.arguments.keys() & other.change.arguments.keys()
    return one.got == other.got and (is_same_line or (bool(shared) and one.got is not None))


def _placed(finding: ShardingFinding, found: Decided) -> ShardingFinding:
    if found.why and finding.kind == "replicated":
        finding = replace(finding, kind="dropped", why=f"{finding.why}; {found.why}")
    if found.line == finding.source:
        return finding
    if not is_of_steps(finding) and _is_named_for(found, finding.source):
        return finding  # of both results and constraints it is the line of one
    return _moved(finding, found.line)


def _moved(finding: ShardingFinding, line: str) -> ShardingFinding:
    """A finding at another line, with its own in the chain."""
    links = [Link(what="applied", line=finding.source)] if finding.source else []
    links += [link for link in finding.chain if link.line not in (line, finding.source)]
    return replace(finding, source=line, chain=tuple(links[:_MAX_LINKS]))


def _is_named_for(found: Decided, source: str | None) -> bool:
    """Whether a variable of a function is assigned there, which the known line chooses by name."""
    file, _, line = (source or "").rpartition(":")
    if file != found.key.file:
        return False
    try:
        text = SourceFile(file)
    except CommandError:
        return False
    names = text.variables_at(found.key.line)
    return bool(names & text.names_at(int(line)))


def _fault(finding: ShardingFinding, facts: Facts, lines: Lines, subject: Subject) -> Fault:
    """The arrays that a finding is about, as a trace knows them."""
    change = finding.change
    is_left_out = any(one.decision.kind == "dropped" for one in change.decisions)  # by a library
    if change.is_assigned or change.exchanges or change.value or is_left_out:
        return Fault({}, {})
    if finding.kind == "gathered":
        return Fault({}, {}, is_kept=True)
    wanted = {f"argument {name}": spec for name, spec in change.arguments.items()}
    if change.is_of_batch:
        wanted |= dict(_decided(finding, facts, lines))
    if is_of_steps(finding):
        fixed = [name for name in change.results if subject.is_result_fixed(name)]
        wanted = {name: change.results[name] for name in fixed}
        wanted |= dict(_decided(finding, facts, lines)) if change.decisions else {}
    if not wanted:
        wanted |= dict(change.results)
    if not wanted:
        wanted |= dict(_decided(finding, facts, lines))
    numbers = even_sizes(finding, subject) if finding.kind == "dropped" else {}
    return Fault(wanted, numbers, is_of_spec=finding.kind == "padding")


def _decided(finding: ShardingFinding, facts: Facts, lines: Lines) -> Iterator[tuple[str, str]]:
    """The constraints at fault, by name, with the specs that they should ask for."""
    change = finding.change
    names = decision_names(facts.decisions)
    others = {one.decision: one.specs for one in change.decisions if one.decision.kind != "scan"}
    if change.decisions:
        yield from [(names[one], (*specs, "")[0]) for one, specs in others.items() if one in names]
        return
    for one in group_of(lines, finding):
        yield names[one], change.constraint
