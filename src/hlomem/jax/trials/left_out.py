"""The axes that a program leaves out of its arguments' specs, because they do not divide a size.

In: a compiled program. Out: the specs that arguments were meant to have, found by tracing the
program with the other answer where it asks what divides what, and where sizes are computed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError
from hlomem.hlo.sharding import parse_spec
from hlomem.jax.probes.instrument import SUM, read_key
from hlomem.jax.probes.parent import Prober
from hlomem.jax.probes.tries import ARGUMENT
from hlomem.jax.trials.constraint_source import has_remainder
from hlomem.jax.trials.source_edits import SourceFile
from hlomem.report.data.sharding.finding import Place
from hlomem.report.data.sharding.subject import LeftOut
from hlomem.report.data.sharding.values import WORTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.jax.compile.messages import Job
    from hlomem.jax.probes.levers import Seen
    from hlomem.jax.probes.messages import Traced
    from hlomem.report.data.sharding.subject import Subject

_SECONDS = 60.0
_MAX_ASKED = 8


def left_out(job: Job, subject: Subject) -> LeftOut | None:
    """The specs that helpers would give if they did not ask what divides; None if not known."""
    if not any(_may_matter(subject)):
        return None
    with Prober(job, _SECONDS) as prober:
        [base] = prober.trace([("", "")])
        if base is None or base.problem:
            return None
        asked = [seen for seen in base.seen if seen.kind == "test" and _is_of_remainder(seen)]
        traced = prober.trace(
            [
                (seen.key, f"{answer.lower()}:")
                for seen in asked[:_MAX_ASKED]
                for answer in ("True", "False")
                if seen.text != answer
            ]
        )
    found: dict[str, str] = {}
    for one in traced:
        found |= dict(_uneven(subject, base, one)) if one is not None else {}
    sums: dict[int, list[Place]] = {}
    for seen in base.seen:
        if seen.kind == "number" and seen.text.isdigit() and (place := _sum_at(seen)):
            sums.setdefault(int(seen.text), []).append(place)
    return LeftOut(found, sums) if asked else None


def _sum_at(seen: Seen) -> Place | None:
    """The position where a number is computed."""
    key = read_key(seen.key)
    if key.syntax != SUM:
        return None
    return Place(
        file=key.file,
        line=key.line,
        column=key.column,
        end_line=key.end_line,
        end_column=key.end_column,
    )


def _may_matter(subject: Subject) -> Iterator[bool]:
    """For each large argument that is whole along an axis, whether a helper may be why."""
    for name, buffer, layout in subject.arguments:
        if layout.sharding is not None and buffer.size >= WORTH * subject.space.size:
            yield subject.may_be_left_out(name, layout.whole, layout.sharding.free)


def _is_of_remainder(seen: Seen) -> bool:
    key = read_key(seen.key)
    try:
        tree = SourceFile(key.file).tree
    except CommandError:
        return False
    return any(
        isinstance(node, ast.Compare)
        and (node.lineno, node.col_offset) == key.begin
        and (node.end_lineno, node.end_col_offset) == key.end
        and has_remainder(node)
        for node in ast.walk(tree)
    )


def _uneven(subject: Subject, base: Traced, traced: Traced) -> Iterator[tuple[str, str]]:
    """Arguments that another answer splits along a dimension that is not divided by the axis."""
    mesh = subject.layouts.mesh
    assert mesh is not None
    shapes = {f"{ARGUMENT}{name}": layout.whole for name, _, layout in subject.arguments}
    before = {one.name: one.spec for one in base.arrays}
    for one in traced.arrays:
        sharding = parse_spec(one.spec, mesh) if one.spec != before.get(one.name) else None
        whole = shapes.get(one.name, ())
        if sharding is not None and any(
            size % sharding.split_of(at) for at, size in enumerate(whole)
        ):
            yield one.name.removeprefix(ARGUMENT), one.spec
