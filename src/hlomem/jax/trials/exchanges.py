"""Findings on all-to-alls that a `shard_map` writes as a gather and a slice, and their changes.

In: what the trace of a program noted (`jax/compile/exchanges.py`). Out: a finding at the line of
each gather, whose change is the program with an all-to-all instead, made while it is traced.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.jax.trials.changes import Change
from hlomem.jax.trials.decided import LINK
from hlomem.report.data.sharding.decision import OtherDecision
from hlomem.report.data.sharding.finding import Link, ShardingChange, ShardingFinding
from hlomem.report.data.sharding.promise import promise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.jax.compile.messages import Facts
    from hlomem.jax.trials.lines import Lines
    from hlomem.report.data.sharding.decision import Exchange
    from hlomem.report.data.sharding.subject import Subject


def with_exchanges(
    findings: Sequence[ShardingFinding], subject: Subject, facts: Facts, lines: Lines
) -> list[ShardingFinding]:
    """The findings on gathers of which each device takes one part, and then the others.

    Without those that only say of the same line that it gathers the whole.
    """
    found = list(_exchange_findings(subject, facts, lines))
    told = {one.source for one in found} | {one.gathered for one in facts.exchanges}
    return [*found, *[one for one in findings if one.kind != "reshard" or one.source not in told]]


def _exchange_findings(subject: Subject, facts: Facts, lines: Lines) -> Iterator[ShardingFinding]:
    """The gathers of which each device takes one part, those of one line together."""
    by_line: dict[str, list[Exchange]] = defaultdict(list)
    for one in facts.exchanges:
        by_line[one.gathered].append(one)
    for line, found in by_line.items():
        gathers = [
            one
            for one in facts.decisions
            if one.kind == "gather" and one.applied and one.applied[0].line == line
        ]
        if gathers:
            others = tuple([OtherDecision(decision=one) for one in gathers])
            source = lines.primary(gathers) or line
            chain = [Link(what="called", line=one.taken) for one in found]
            chain += lines.chain(gathers, source)
            yield _finding(subject, found, others, source, chain)


def _finding(
    subject: Subject,
    found: Sequence[Exchange],
    others: tuple[OtherDecision, ...],
    source: str,
    chain: Sequence[Link],
) -> ShardingFinding:
    first = max(found, key=lambda one: one.size)
    axes = " and ".join(first.axes)
    share = {
        buffer.id: 1 / first.devices
        for buffer in subject.memory.buffers
        if buffer.source == first.gathered and buffer.color == subject.space.color
    }
    return ShardingFinding(
        kind="reshard",
        title=f"{format_bytes(first.size)} on each device: gathered along {axes}, then cut again",
        why=f"of what is gathered each device takes the part with its own number, at {first.taken};"
        " an all-to-all sends nothing else",
        size=first.size,
        promised=promise(subject.memory, subject.space, share) if share else 0,
        source=source,
        chain=tuple({one.line: one for one in chain if one.line != source}.values()),
        names=(source,),
        axes=first.axes,
        how=_code(first),
        change=ShardingChange(exchanges=others),
    )


def _code(one: Exchange) -> str:
    """The code of an all-to-all, with what it stands for."""
    axes = repr(one.axes[0] if len(one.axes) == 1 else one.axes)
    value = "x" if one.is_tiled else f"jnp.expand_dims(x, {one.concat})"
    head = f"instead of the gather, and of the slice at {one.taken}:"
    call = f"jax.lax.all_to_all({value}, {axes}, split_axis={one.split}, concat_axis={one.concat},"
    between = "\n# and then what is between both, of one part" if one.is_moved else ""
    return f"{head}\n{call} tiled=True){between}"


def exchanges_instead(finding: ShardingFinding) -> Iterator[Change]:
    """The program with all-to-alls instead of the gathers of a finding."""
    others = finding.change.exchanges
    title = f"an all-to-all at {finding.source}"
    yield Change("shard", title, "", LINK, decisions=others, code=finding.how)
