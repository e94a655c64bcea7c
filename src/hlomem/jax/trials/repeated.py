"""Matrix products that several devices compute alike, and the line where a split is missing.

In: a compiled program that computes more in all than was asked for. Out: findings on expressions
of its source with which, compiled, the devices compute less and need less memory. What is tried is
one more axis in each spec, name or word of the source that has an effect on some array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.sharding import bare_spec, parse_spec, parts_of
from hlomem.jax.probes.deciding import Decided
from hlomem.jax.probes.instrument import read_key
from hlomem.jax.probes.parent import Prober
from hlomem.jax.trials.value_edits import shardings_of, value_changes
from hlomem.report.data.roles import STACKED
from hlomem.report.data.sharding.finding import ShardingFinding
from hlomem.report.data.sharding.values import WORTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.sharding import Mesh
    from hlomem.jax.compile.messages import Job
    from hlomem.jax.known_plans import FoundPlan
    from hlomem.jax.probes.levers import Seen
    from hlomem.jax.probes.messages import Traced
    from hlomem.jax.trials.trying import Trials, Tried
    from hlomem.report.data.sharding.subject import Subject

PRODUCTS = "matrix products"
"""The first name of findings on them."""
REPEATED = 1.15
"""From which on products are said to be repeated. It was chosen with 26 programs without a fault in
sight, which compute them up to 1.08 times."""
_LEAST = 0.1
"""The share of the memory that a split has to save."""
_NEAR = 0.98
_MAX_TRIED = 160
_MAX_COMPILED = 8
_MAX_DIMENSIONS = 3
_SECONDS = 120.0


class _Way(NamedTuple):
    """A change of the source that splits some arrays more."""

    found: Decided
    saved: float
    """Bytes on each device, of arguments, results and constraints."""


def times_computed(found: FoundPlan, subject: Subject) -> float:
    """How often the matrix products that are asked for are computed, on all devices together.

    0 where it is not known.
    """
    mesh, flops = subject.layouts.mesh, found.plan.flops
    if mesh is None or found.facts.has_while or not found.facts.flops or flops is None:
        return 0.0
    return flops * mesh.size / found.facts.flops


def repeated_products(
    trials: Trials, job: Job, subject: Subject, times: float
) -> list[ShardingFinding]:
    """The finding on a split that is missing, where products are repeated, if there is one.

    Of several that save about the same, the one that splits fewest arrays.
    """
    found = sorted(_findings(trials, job, subject, times), key=lambda one: -(one.got or 0))
    near = [one for one in found if (one.got or 0) >= _NEAR * (found[0].got or 0)]
    return sorted(near, key=lambda one: len(one.names))[:1]


def _findings(
    trials: Trials, job: Job, subject: Subject, times: float
) -> Iterator[ShardingFinding]:
    mesh = subject.layouts.mesh
    if mesh is None or times < REPEATED:
        return
    for found, done in _compiled(trials, job, mesh, subject):
        assert done.found is not None
        got = trials.base.plan.size - done.size
        fewer = times_computed(done.found, subject)
        if got >= _LEAST * trials.base.plan.size and fewer <= times - (times - 1) / 2:
            yield _finding(found, done, subject, got, (times, fewer))


def _compiled(
    trials: Trials, job: Job, mesh: Mesh, subject: Subject
) -> Iterator[tuple[Decided, Tried]]:
    """The ways that may save most, compiled."""
    least = WORTH * subject.space.size
    for way in _ways(job, mesh, least)[:_MAX_COMPILED]:
        for change in value_changes(way.found):
            done = trials.try_together((change,))
            if done.found is not None:
                yield way.found, done
                break


def _ways(job: Job, mesh: Mesh, least: float) -> list[_Way]:
    """The changes that split some arrays more and none less, those of the most bytes first."""
    with Prober(job, _SECONDS) as prober:
        [base] = prober.trace([("", "")])
        if base is None or base.problem:
            return []
        tries = list(_tries(base, mesh))[:_MAX_TRIED]
        traced = prober.trace([(seen.key, change) for seen, change in tries])
    found: dict[tuple[tuple[str, str], ...], _Way] = {}
    for (seen, change), one in zip(tries, traced, strict=True):
        if one is None or one.problem or not one.is_changed:
            continue
        specs = tuple([(placed.name, bare_spec(placed.spec)) for placed in one.arrays])
        way = _way(base, one, mesh, seen, change)
        if way is not None and way.saved >= least:
            found.setdefault(specs, way)
    return sorted(found.values(), key=lambda way: -way.saved)


def _way(base: Traced, traced: Traced, mesh: Mesh, seen: Seen, change: str) -> _Way | None:
    before = {one.name: one for one in base.arrays}
    saved, specs = 0.0, traced.changed(base)
    for one in traced.arrays:
        if one.name not in specs:
            continue
        earlier = before[one.name]
        asked = parse_spec(one.spec, mesh)
        is_possible = asked is not None and len(asked.dimensions) <= (one.dimensions or 99)
        less = earlier.size / parts_of(earlier.spec, mesh) - one.size / parts_of(one.spec, mesh)
        if not is_possible or less < 0:
            return None
        saved += less
    found = Decided(read_key(seen.key), change, seen, is_wanted=True, specs=specs)
    return _Way(found, saved) if specs else None


def _tries(base: Traced, mesh: Mesh) -> Iterator[tuple[Seen, str]]:
    """One more axis wherever axes are said."""
    axes = [axis.name for axis in mesh.axes]
    for some in (_words, _names, _specs, _blanks):
        for seen in base.seen:
            for change in dict.fromkeys(some(seen, axes, mesh)):
                yield seen, change


def _words(seen: Seen, axes: Sequence[str], _: Mesh) -> Iterator[str]:
    if seen.kind == "text" and seen.text in axes:
        yield from [f"axes:{seen.text},{axis}" for axis in axes if axis != seen.text]


def _names(seen: Seen, axes: Sequence[str], _: Mesh) -> Iterator[str]:
    words = seen.text.split("\n")
    if seen.kind == "names" and set(words) <= {"", *axes}:
        yield from [f"add:{axis}" for axis in axes if axis not in words]


def _specs(seen: Seen, _: Sequence[str], mesh: Mesh) -> Iterator[str]:
    asked = parse_spec(seen.text, mesh) if seen.kind in ("spec", "sharding") else None
    if asked is None:
        return
    rank = min(max(len(asked.dimensions) + 1, 2), _MAX_DIMENSIONS)
    for axis in asked.free:
        yield from [f"spec:{asked.with_axis(at, axis).spec()}" for at in range(rank)]


def _blanks(seen: Seen, axes: Sequence[str], _: Mesh) -> Iterator[str]:
    if seen.kind == "none":
        yield from [f"axis:{axis}" for axis in axes]


def _finding(
    found: Decided, done: Tried, subject: Subject, got: int, times: tuple[float, float]
) -> ShardingFinding:
    before, after = times
    change = shardings_of(found)
    has_stacks = any(buffer.role == STACKED for buffer, _ in subject.values)
    return ShardingFinding(
        kind="stack" if has_stacks and not change.arguments else "replicated",
        title=f"matrix products are computed {before:.1f} times",
        why=f"devices that hold the same compute the same; with the change below, {after:.1f}",
        size=got,
        promised=0,
        source=found.line,
        names=(PRODUCTS, *change.arguments),
        how=done.how(),
        got=got,
        change=change,
    )
