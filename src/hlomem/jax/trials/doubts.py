"""Findings on words of the source that have no effect as they stand, each with what it splits.

In: a factory, and what is known of its program. Out: findings with the shardings that arrays have
once another word stands there, as a trace with it tells; they are compiled by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.sharding import parts_of
from hlomem.jax.probes.deciding import Decided
from hlomem.jax.probes.doubtful import Doubtful
from hlomem.jax.probes.instrument import read_key
from hlomem.jax.probes.levers import SWAPPED
from hlomem.jax.probes.parent import Prober
from hlomem.jax.probes.tries import doubtful_of, names_without_row, unused_rows
from hlomem.jax.trials.value_edits import shardings_of, value_changes
from hlomem.report.data.sharding.finding import ShardingFinding
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.sharding import Mesh
    from hlomem.jax.compile.messages import Job
    from hlomem.jax.probes.messages import Traced
    from hlomem.jax.trials.changes import Change
    from hlomem.report.data.sharding.subject import Subject

_SECONDS = 60.0
_MAX_TRIED = 24
_MAX_FOUND = 4


def doubted_words(job: Job, subject: Subject) -> Iterator[tuple[ShardingFinding, list[Change]]]:
    """Names that are no axes, and rows that are not reached, where others would split arrays."""
    mesh = subject.layouts.mesh
    axes = () if mesh is None else tuple([axis.name for axis in mesh.axes])
    if mesh is None:
        return
    with Prober(job, _SECONDS) as prober:
        [base] = prober.trace([("", "")])
        if base is None or base.problem:
            return
        doubtful = doubtful_of(base, axes) | dict(_rows(base)) | dict(_names(base))
        tries = [(key, word) for key, one in doubtful.items() for word in one.meant][:_MAX_TRIED]
        traced = prober.trace([(key, _change_to(doubtful[key], word)) for key, word in tries])
    best: dict[str, tuple[float, Decided]] = {}
    for (key, word), one in zip(tries, traced, strict=True):
        saved = _split_more(base, one, mesh) if one is not None else 0.0
        if one is not None and saved > best.get(key, (0.0,))[0]:
            seen = next(its for its in base.seen if its.key == key)
            change = _change_to(doubtful[key], word)
            found = Decided(read_key(key), change, seen, is_wanted=True, specs=one.changed(base))
            best[key] = saved, found
    # A small array may be all that says how a large one is split, so that few are compiled.
    for key, (saved, found) in sorted(best.items(), key=lambda one: -one[1][0])[:_MAX_FOUND]:
        yield _finding(doubtful[key], found, int(saved))


def _names(base: Traced) -> Iterator[tuple[str, Doubtful]]:
    """The names that no row has, wherever they stand."""
    texts = {one.key: one.text for one in base.seen}
    for key, words in names_without_row(base).items():
        why = f"no row of a table is for {texts[key]!r}"
        yield key, Doubtful(read_key(key).begin, words, why, texts[key])


def _change_to(doubtful: Doubtful, word: str) -> str:
    """Another word at a place, or wherever the word stands that is there."""
    everywhere = doubtful.everywhere
    return f"every:{everywhere}{SWAPPED}{word}" if everywhere else f"axis:{word}"


def _rows(base: Traced) -> Iterator[tuple[str, Doubtful]]:
    """The rows of tables that nothing uses, with the names that no row has."""
    texts = {one.key: one.text for one in base.seen}
    for key, words in unused_rows(base).items():
        why = f"nothing is called {texts[key]!r}, which a row of a table is for"
        yield key, Doubtful(read_key(key).begin, words, why)


def _split_more(base: Traced, traced: Traced, mesh: Mesh) -> float:
    """The bytes on each device that arrays are less that are split more than before, or now."""
    before = {one.name: one.spec for one in base.arrays}
    if traced.problem:
        return 0.0
    saved = 0.0
    for one in traced.arrays:
        earlier, now = parts_of(before.get(one.name, ""), mesh), parts_of(one.spec, mesh)
        saved += max(one.size / earlier - one.size / now, 0.0)
    return saved


def _finding(
    doubtful: Doubtful, found: Decided, saved: int
) -> tuple[ShardingFinding, list[Change]]:
    change = shardings_of(found)
    several = (len(change.arguments), "argument"), (len(change.results), "result")
    told = [plural(count, word) for count, word in several if count]
    others = len(found.specs) - len(change.arguments) - len(change.results)
    told += [plural(others, "other array")] if others > 0 else []
    finding = ShardingFinding(
        kind="dropped",
        title=f"a name without effect: {doubtful.why}",
        why=f"another name splits {' and '.join(told) or 'what had no constraint'} more",
        size=saved,
        promised=0,
        source=found.line,
        names=(doubtful.why, *change.arguments),
        how="",
        change=change,
    )
    return finding, list(value_changes(found))[:1]
