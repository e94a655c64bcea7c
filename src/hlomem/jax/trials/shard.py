"""`hlomem.jax.shard`: the shardings of a program, with changes that were made and compiled.

    hlomem.jax.shard("train:make_step", target="tpu-v5e:2x2")
    hlomem.jax.shard(train_step, params, batch, target="tpu-v5e:2x2")

In: a factory, or a function with its arguments. Out: a `ShardReport` whose findings say what their
change saved when it was compiled. No file of the user is written.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.base.errors import CommandError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.fitting import spec_of
from hlomem.jax.known_plans import KnownPlans, default_cache
from hlomem.jax.target_kinds import parse_target
from hlomem.jax.trials.called_function import FACTORY, kept_arguments
from hlomem.jax.trials.causes import at_deciding_lines
from hlomem.jax.trials.constraint_source import is_handed_back, unused_constraints
from hlomem.jax.trials.decided import (
    following_constraints,
    other_constraints,
    recomputed_loops,
    stacked_constraints,
    used_constraints,
)
from hlomem.jax.trials.decision_search import Search
from hlomem.jax.trials.doubts import doubted_words
from hlomem.jax.trials.exchanges import exchanges_instead, with_exchanges
from hlomem.jax.trials.finding_changes import changes_of, is_of_steps
from hlomem.jax.trials.givers import Givers
from hlomem.jax.trials.left_out import left_out
from hlomem.jax.trials.lines import Lines, chain_of_argument, group_of
from hlomem.jax.trials.repeated import PRODUCTS, REPEATED, repeated_products, times_computed
from hlomem.jax.trials.source_edits import SourceFile
from hlomem.jax.trials.subjects import subject_of
from hlomem.jax.trials.trying import Trials
from hlomem.report.data.shard import ShardReport, report_on
from hlomem.report.data.sharding.argument_findings import code_of
from hlomem.report.data.sharding.finding import (
    WORDS,
    Link,
    Place,
    ShardingChange,
    ShardingFinding,
)
from hlomem.report.data.sharding.values import WORTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.hlo.sharding import Mesh
    from hlomem.jax.compile.messages import ArgumentLines, Facts
    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.jax.trials.changes import Change
    from hlomem.report.data.sharding.decision import Decision
    from hlomem.report.data.sharding.finding import FindingKind
    from hlomem.report.data.sharding.subject import Subject

MAX_SECONDS = 1800.0
"""How long one compile may take."""
_MAX_TRIED = 12
"""Findings whose changes are compiled."""
_LEAST, _SMALLEST = 0.06, 1 << 16
"""The share of the memory, and the bytes, that a change saves, so that it is told."""
_LEAST_OF_CHOICES = 0.1
"""The share where what is at fault may be asked for, as values that are whole along an axis: such
choices of programs without a fault (tools/sharded/fifth, eleventh) were seen to save up to 7 %."""
_LEAST_COMPUTED_ONCE = 0.2
"""The same where no matrix product is computed twice: what is whole costs no time. It was chosen
with a choice of 14 % in sight (tools/sharded/twentythird)."""
_PASSED_ON, _AS_MUCH = 0.02, 0.95
"""The share of what a finding saves that arguments have, at most, to be wanted whole for what is
made of them, and the share that splitting this saves."""
_MORE = 2
"""How often what is gathered may be saved by a policy that drops it, with what is made of it."""
_UNTRIED = 0.25
"""The same by the plan, for a change that could not be compiled."""
_MAX_UNUSED = 2
_NEAR, _SURE = 0.9, 0.25
"""The shares of the most that is saved from which on a likely and a sure mistake may be first."""
_SAME = 1.02
_RESIZED = 0.9
"""The share that counts of the bytes that other sizes save, next to other shardings."""
_PRECEDENCE: tuple[FindingKind, ...] = (
    "dropped", "donated", "optimizer", "padding", "reshard", "gathered", "stack", "replicated"
)  # fmt: skip
"""The surest first."""
_NOTHING = ShardingFinding(
    kind="dropped",
    title="by the plan, nothing of it is at the peak",
    why="",
    size=0,
    promised=0,
    source=None,
    how="",
    change=ShardingChange(),
)


def shard(
    subject: str | Callable[..., Any],
    /,
    *arguments: Any,
    target: str | None = None,
    settings: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    cache: str | Path | None = None,
    timeout: float | None = MAX_SECONDS,
    is_tried: bool = True,
    log: str = "",
    on_progress: Callable[[str], None] = lambda _: None,
    **keywords: Any,
) -> ShardReport:
    """The arrays on each device, what is gathered, and what other shardings save, compiled.

    `subject` is a factory of `hlomem compile` by name, or a function of a module, jitted or not,
    followed by its arguments. `is_tried=False` promises from the plan and compiles no change.
    `log` is a text with warnings of the partitioner, which those of this compile are added to.
    """
    aim = parse_target(target or "cpu").name
    folder = Path(cache) if cache else default_cache()
    settings, imports = dict(settings or {}), tuple(imports)
    if isinstance(subject, str):
        if arguments or keywords:
            raise CommandError("a factory has its own arguments: give the function instead")
        job = Job(factory=subject, target=aim, settings=settings, imports=imports)
        return shard_job(job, folder, timeout, on_progress, is_tried=is_tried, log=log)
    spec = spec_of(getattr(subject, "__wrapped__", subject))
    with kept_arguments(arguments, keywords) as file:
        own = {"function": spec, "arguments": str(file)}
        job = Job(factory=FACTORY, target=aim, settings=own, imports=imports)
        return shard_job(job, folder, timeout, on_progress, is_tried=is_tried, log=log)


def shard_job(
    job: Job,
    cache: Path,
    timeout: float | None = MAX_SECONDS,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    is_tried: bool = True,
    log: str = "",
) -> ShardReport:
    """The same of a job."""
    known = KnownPlans(cache)
    words = f"of {job.factory} for {job.target}"
    planned = plan_in_child(
        replace(job, has_fingerprint=True, has_calls=True, has_shardings=True),
        timeout=timeout,
        on_progress=lambda doing: on_progress(f"{doing} {words}"),
    )
    subject = subject_of(planned, log)
    subject.left_out = left_out(job, subject) if is_tried else None
    report = replace(report_on(subject, is_tried=is_tried), target=job.target)
    dead = planned.facts.dead_constraints
    facts = planned.facts
    lines = Lines(facts.decisions, frozenset(facts.placing))
    mesh = subject.layouts.mesh
    givers = Givers(_executed(facts), {axis.name for axis in mesh.axes} if mesh else set())
    made = facts.argument_lines
    dead = tuple(dict.fromkeys([*dead, *_handed_back(facts.decisions, dead)]))
    placed = [_at_its_line(lines, givers, made, mesh, one) for one in report.findings]
    found = with_exchanges(list(_with_unused(placed, dead)), subject, facts, lines)
    report = replace(report, findings=tuple(found))
    search = Search(subject, planned.facts.decisions, lines)
    doubts = [*doubted_words(job, subject), *search.findings()] if is_tried else []
    if not is_tried:
        told = [one for one in report.findings if one.promised > 0]
        return replace(report, findings=tuple(told))
    trials = Trials(
        job,
        known.keep(planned),
        known,
        timeout,
        lambda doing: on_progress(f"tries {doing} {words}"),
    )
    tried = [
        _tried(trials, finding, planned, lines, subject) if number < _MAX_TRIED else finding
        for number, finding in enumerate(report.findings)
    ]
    helped = [one for one in tried if _is_helpful(one, report.size)]
    asked = [_best(trials, one, changes) for one, changes in doubts if not _is_covered(one, helped)]
    tried += [one for one in asked if one.got is not None]
    times = times_computed(trials.base, subject)
    tried += repeated_products(trials, job, subject, times)
    tried = _without_told(_without_others(tried), WORTH * report.size)
    of_choice = _LEAST_OF_CHOICES if times == 0 or times >= REPEATED else _LEAST_COMPUTED_ONCE
    tried = _without_passed_on(tried, {one.name: one.size for one in report.arguments})
    tried = _without_symptoms(tried, report.size)
    helpful = [one for one in tried if _is_helpful(one, report.size, of_choice)]
    notes = [_note(one) for one in tried if one not in helpful]
    on_progress(f"traces other values {words}")
    findings = at_deciding_lines(trials, job, _ranked(helpful), facts, lines, subject)
    return replace(report, findings=tuple(_ranked(findings)), notes=(*report.notes, *notes))


def _at_its_line(
    lines: Lines,
    givers: Givers,
    made: Mapping[str, ArgumentLines],
    mesh: Mesh | None,
    finding: ShardingFinding,
) -> ShardingFinding:
    """A finding at the line where a reviewer would edit, with the others that lead to it."""
    group = group_of(lines, finding)
    if finding.kind == "padding" and mesh is not None:
        group = lines.padded_alike(group, mesh)
    source = lines.primary(group) or finding.source
    at = made.get(finding.names[0]) if finding.names and finding.change.arguments else None
    used, given = source, givers.of(source) if source else ()
    source = given[0] if given else source
    chain = chain_of_argument(at, source) if at else lines.chain(group, source or "")
    more = [Link(what="written", line=line) for line in given[1:]]
    more += [Link(what="applied", line=used)] if used is not None else []
    known = {source, *[link.line for link in chain]}
    return replace(
        finding, source=source, chain=(*chain, *[link for link in more if link.line not in known])
    )


def _executed(facts: Facts) -> set[str]:
    """The lines that were going on when shardings were made."""
    own = [*facts.argument_lines.values(), *facts.result_lines]
    lines = {line for at in own for line in (*at.made, *at.sharding, *at.written)}
    return lines | {
        frame.line for one in facts.decisions for frame in (*one.applied, *one.made, *one.written)
    }


def _with_unused(
    findings: Sequence[ShardingFinding], dead: Sequence[str]
) -> Iterator[ShardingFinding]:
    """Findings, and before those on whole values the constraints whose values are not used."""
    told: set[str] = set()
    for finding in findings:
        place = finding.change.place
        is_whole = finding.kind in ("replicated", "stack") and place is not None
        if place is not None and is_whole and place.file not in told:
            told.add(place.file)
            yield from _unused(finding, place.file, dead)
        yield finding
    for file in dict.fromkeys([line.rpartition(":")[0] for line in dead]):
        if file not in told:
            yield from _unused(_NOTHING, file, dead)


def _is_covered(doubt: ShardingFinding, helped: Sequence[ShardingFinding]) -> bool:
    """Whether what helps is on the line of a doubt, or on the stacks that it is about."""
    return doubt.kind != "dropped" and any(
        one.source == doubt.source
        or (one.kind == doubt.kind == "stack" and not set(one.axes).isdisjoint(doubt.axes))
        for one in helped
    )


def _handed_back(decisions: Sequence[Decision], dead: Sequence[str]) -> Iterator[str]:
    """The lines that do nothing with what helpers hand back to them, constrained."""
    for one in decisions:
        if one.kind == "constraint" and one.applied and one.applied[0].line in dead:
            for frame, caller in pairwise(one.applied):
                if not is_handed_back(*_file_and_line(frame.line)):
                    break
                yield caller.line


def _file_and_line(text: str) -> tuple[str, int]:
    file, _, line = text.rpartition(":")
    return file, int(line)


def _unused(finding: ShardingFinding, file: str, dead: Sequence[str]) -> Iterator[ShardingFinding]:
    """A finding as one on a constraint of a file whose value is not used."""
    own = [line.rpartition(":") for line in dead]
    try:
        lines = [int(number) for name, _, number in own if name == file]
        found = unused_constraints(SourceFile(file), lines)
    except CommandError:
        return
    for call, value, statement in found[:_MAX_UNUSED]:
        name = ast.unparse(value)
        yield replace(
            finding,
            kind="dropped",
            title=f"a constraint on {name} whose value is not used",
            why=f"with_sharding_constraint returns another value, and {name} stays as it was;"
            f" {finding.title}",
            source=f"{file}:{call.lineno}",
            chain=(),
            how=f"{name} = {ast.unparse(call)}",
            change=ShardingChange(place=Place(file=file, line=statement.lineno), is_assigned=True),
        )


def _without_others(tried: Sequence[ShardingFinding]) -> list[ShardingFinding]:
    """Of findings on the same arrays at several places, the one that saved most."""
    best: dict[tuple[str, tuple[str, ...]], ShardingFinding] = {}
    for one in tried:
        key = one.kind, one.names
        known = best.get(key)
        is_better = known is None or (one.got or 0) > max(_SAME * (known.got or 0), 0)
        best[key] = one if known is None or is_better else known
    return list(best.values())


def _without_told(tried: Sequence[ShardingFinding], least: float) -> list[ShardingFinding]:
    """Without findings on the values that a constraint, once it is used, was seen to split."""
    names = {one.names for one in tried if one.change.is_assigned and one.got and one.got > least}
    return [one for one in tried if one.change.is_assigned or one.names not in names]


def _without_symptoms(tried: Sequence[ShardingFinding], size: int) -> list[ShardingFinding]:
    """Without findings of which another is the cause, where that saves as much.

    A cause is a constraint of the same line that has no effect, or what is whole along the same
    axis where the program, or a loop, begins.
    """
    saved = {
        one.source: one.got or 0
        for one in tried
        if one.kind == "dropped" and _is_helpful(one, size)
    }
    by_input = {
        one.axes: one.got or 0
        for one in tried
        if one.kind in ("replicated", "stack") and _is_begun(one) and _is_helpful(one, size)
    }
    return [
        one
        for one in tried
        if one.kind == "dropped"
        or (
            _NEAR * (one.got or 0) > saved.get(one.source, -1)
            and (_is_begun(one) or _NEAR * (one.got or 0) > by_input.get(one.axes, -1))
        )
    ]


def _without_passed_on(
    tried: Sequence[ShardingFinding], sizes: Mapping[str, int]
) -> list[ShardingFinding]:
    """Without small inputs that may be wanted whole, where what is made of them can be split."""
    on_values = [one.got or 0 for one in tried if _may_be_chosen(one)]
    return [
        one
        for one in tried
        if not (one.is_other and one.change.arguments)
        or sum(sizes.get(name, 0) for name in one.change.arguments) >= _PASSED_ON * (one.got or 0)
        or max(on_values, default=0) < _AS_MUCH * (one.got or 0)
    ]


def _is_begun(finding: ShardingFinding) -> bool:
    """Whether a change is of arguments, or of what a loop begins with."""
    others = finding.change.decisions
    return bool(finding.change.arguments) or any(
        one.decision.kind == "scan" and one.specs for one in others
    )


def _note(finding: ShardingFinding) -> str:
    """A sentence on a finding whose change saves nothing."""
    where = f" at {finding.source}" if finding.source else ""
    if finding.got is None:
        return f"{WORDS[finding.kind]}{where}: {finding.note or 'not compiled'}"
    saved = finding.got
    what = "saves" if saved >= 0 else "takes"
    return f"compiled: {WORDS[finding.kind]}{where}: its change {what} {format_bytes(abs(saved))}"


def _is_helpful(finding: ShardingFinding, size: int, of_choice: float = _LEAST_OF_CHOICES) -> bool:
    if finding.got is None:
        return finding.promised >= _UNTRIED * size
    saved = finding.got
    if finding.change.drops_gathered:  # what else a policy drops is another matter
        saved = min(saved, _MORE * finding.size)
    least = of_choice if _may_be_chosen(finding) else _LEAST
    return saved >= max(least * size, finding.least * size, _SMALLEST)


def _may_be_chosen(finding: ShardingFinding) -> bool:
    """Whether a finding is on values, or a result, that may be wanted whole."""
    is_random = any(one.decision.kind == "random" for one in finding.change.decisions)
    is_of_values = finding.kind in ("replicated", "stack") and not finding.change.arguments
    return is_of_values and not is_random


def _ranked(findings: Sequence[ShardingFinding]) -> list[ShardingFinding]:
    """By what was saved; of those that save about the same, a plain mistake first.

    Padding and a constraint without effect are never asked for, but a whole array may be.
    """
    left = sorted(findings, key=lambda one: (one.got is None, -(one.got or one.promised)))
    order = []
    while left:
        first = left[0]
        alike = [one for one in left if _is_near(one, first)]
        order.append(min(alike, key=_precedence))
        left.remove(order[-1])
    return order


def _precedence(finding: ShardingFinding) -> tuple[int, bool, bool]:
    is_by_products = finding.names[:1] == (PRODUCTS,)  # others say what is whole
    return _PRECEDENCE.index(finding.kind), not finding.change.arguments, is_by_products


def _is_near(one: ShardingFinding, first: ShardingFinding) -> bool:
    if one.got is None or first.got is None:
        return one is first
    return one.got >= (_SURE if one.kind in ("dropped", "padding") else _NEAR) * first.got


def _tried(
    trials: Trials,
    finding: ShardingFinding,
    planned: PlannedProgram,
    lines: Lines,
    subject: Subject,
) -> ShardingFinding:
    """A finding with what its change saved: by an edit of the source, or else without one."""
    best = _best(trials, finding, list(changes_of(finding, planned, subject)))
    if _is_helpful(best, trials.base.plan.size) and best.got is not None:
        return best
    other = _best(trials, finding, list(_decided(finding, planned, lines, subject.layouts.mesh)))
    is_better = other.got is not None and other.got > (best.got or 0)
    return other if is_better else best


def _decided(
    finding: ShardingFinding, planned: PlannedProgram, lines: Lines, mesh: Mesh | None
) -> Iterator[Change]:
    """The changes that are made while the program is traced."""
    group, decisions = group_of(lines, finding), planned.facts.decisions
    if finding.change.is_of_batch and mesh is not None:
        yield from following_constraints(decisions, finding.change, finding.axes, mesh)
    elif is_of_steps(finding) and mesh is not None:
        yield from stacked_constraints(decisions, finding.change, mesh)
    elif finding.change.is_assigned:
        yield from used_constraints(lines.through(finding.source or ""))
    elif finding.change.exchanges:
        yield from exchanges_instead(finding)
    elif finding.change.drops_gathered:
        yield from recomputed_loops(decisions, group)
    elif group:
        yield from other_constraints(group, finding.change)


def _best(trials: Trials, finding: ShardingFinding, changes: Sequence[Change]) -> ShardingFinding:
    """A finding with what the best of its changes saved."""
    done = [trials.try_together((change,)) for change in changes]
    compiled = [one for one in done if one.found is not None]
    if not compiled:
        if done:  # a change that cannot be made promises nothing
            return replace(finding, promised=0, note=f"not compiled: {done[0].problem}")
        problem = "no expression of the source could be changed"
        return replace(finding, note=f"not compiled: {problem}")
    best = max(compiled, key=lambda one: _worth(trials.base.plan.size - one.size, one.changes))
    got = trials.base.plan.size - best.size
    [chosen] = best.changes
    change = finding.change
    if change.value is None:
        change = replace(
            change,
            arguments=dict(chosen.arguments),
            other_arguments={},
            results=dict(chosen.results),
            has_mesh=chosen.has_mesh,
            decisions=chosen.decisions,
        )
    if chosen.at:
        links = [Link(what="applied", line=finding.source)] if finding.source else []
        why = f"{finding.why}; {chosen.cost}"
        finding = replace(finding, source=chosen.at, chain=(*links, *finding.chain), why=why)
    how = [
        code_of(dict(chosen.arguments), dict(chosen.results)),
        best.how() if best.edits or chosen.code else "",
    ]
    return replace(finding, got=got, how="\n".join([part for part in how if part]), change=change)


def _worth(saved: int, changes: Sequence[Change]) -> float:
    """The bytes that changes save; less of one that gives arrays another size."""
    return saved * _RESIZED if any(change.at for change in changes) else saved
