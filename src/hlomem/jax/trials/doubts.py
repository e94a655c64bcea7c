"""Findings on words of the source that have no effect as they stand, each with what it splits.

In: a factory, and what is known of its program. Out: findings with the shardings that arrays have
once another word stands there, as a trace with it tells; they are compiled by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.jax.compile.decisions import decision_names
from hlomem.jax.probes.doubtful import Doubtful
from hlomem.jax.probes.instrument import read_key
from hlomem.jax.probes.parent import Prober
from hlomem.jax.probes.tries import ARGUMENT, doubtful_of, unused_rows
from hlomem.jax.trials.changes import Change
from hlomem.jax.trials.decided import LINK, parts_of
from hlomem.report.data.sharding.decision import OtherDecision
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.values import WORTH
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.sharding import Mesh
    from hlomem.jax.compile.messages import Facts, Job
    from hlomem.jax.probes.messages import Traced
    from hlomem.report.data.sharding.subject import Subject

_SECONDS = 60.0
_MAX_TRIED = 12


def doubted_words(
    job: Job, facts: Facts, subject: Subject
) -> Iterator[tuple[ShardingFinding, list[Change]]]:
    """Names that are no axes, and rows that are not reached, where others would split arrays."""
    mesh = subject.layouts.mesh
    axes = () if mesh is None else tuple([axis.name for axis in mesh.axes])
    if mesh is None:
        return
    with Prober(job, _SECONDS) as prober:
        [base] = prober.trace([("", "")])
        if base is None or base.problem:
            return
        doubtful = doubtful_of(base, axes) | dict(_rows(base))
        tries = [(key, word) for key, one in doubtful.items() for word in one.meant][:_MAX_TRIED]
        traced = prober.trace([(key, f"axis:{word}") for key, word in tries])
    best: dict[str, tuple[float, str, dict[str, str]]] = {}
    for (key, axis), one in zip(tries, traced, strict=True):
        specs = dict(_split_more(base, one, mesh)) if one is not None else {}
        saved = sum(saved for saved, _ in specs.values())
        if saved > max(best.get(key, (0.0,))[0], WORTH * subject.space.size):
            best[key] = saved, axis, {name: spec for name, (_, spec) in specs.items()}
    for key, (saved, axis, wanted) in best.items():
        yield _finding(key, doubtful[key], axis, wanted, int(saved), facts)


def _rows(base: Traced) -> Iterator[tuple[str, Doubtful]]:
    """The rows of tables that nothing uses, with the names that no row has."""
    texts = {one.key: one.text for one in base.seen}
    for key, words in unused_rows(base).items():
        why = f"nothing is called {texts[key]!r}, which a row of a table is for"
        yield key, Doubtful(read_key(key).begin, words, why)


def _split_more(
    base: Traced, traced: Traced, mesh: Mesh
) -> Iterator[tuple[str, tuple[float, str]]]:
    """The arrays that are split more than before: bytes that this saves, and their specs."""
    after = {one.name: one for one in traced.arrays}
    if traced.problem:
        return
    for one in base.arrays:
        other = after.get(one.name)
        if other is None or other.spec == one.spec:
            continue
        before, now = parts_of(one.spec, mesh), parts_of(other.spec, mesh)
        if now > before:
            yield one.name, (one.size / before - one.size / now, other.spec)


def _finding(
    key: str, doubtful: Doubtful, axis: str, wanted: dict[str, str], saved: int, facts: Facts
) -> tuple[ShardingFinding, list[Change]]:
    place, names = read_key(key), decision_names(facts.decisions)
    line = f"{place.file}:{place.line}"
    arguments = {
        name.removeprefix(ARGUMENT): spec
        for name, spec in wanted.items()
        if name.startswith(ARGUMENT)
    }
    results = {name: spec for name, spec in wanted.items() if name.startswith("result[")}
    others = tuple(
        [
            OtherDecision(decision=one, specs=(wanted[name],))
            for one, name in names.items()
            if name in wanted and one.kind == "constraint"
        ]
    )
    counts = ((len(arguments), "argument"), (len(results), "result"), (len(others), "constraint"))
    told = [plural(count, word) for count, word in counts if count]
    are = "is" if sum(count for count, _ in counts) == 1 else "are"
    code = f"{axis!r} at {line}"
    finding = ShardingFinding(
        kind="dropped",
        title=f"a name without effect: {doubtful.why}",
        why=f"with {axis!r} there {' and '.join(told)} {are} split more",
        size=saved,
        promised=0,
        source=line,
        names=(doubtful.why, *arguments),
        axes=(axis,),
        how=code,
        change=ShardingChange(arguments=arguments, results=results, decisions=others),
    )
    change = Change(
        "shard",
        f"{axis!r} at {line}",
        "",
        LINK,
        arguments=tuple(arguments.items()),
        results=tuple(results.items()),
        decisions=others,
        code=code,
    )
    return finding, [change]
