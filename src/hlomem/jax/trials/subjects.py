"""A compiled program as the rules on shardings look at it, with the lines that its trace noted.

In: a program that was planned in a child. Out: a `Subject`, whose arguments and results have the
lines that made their shardings, or that hand these to `jax.jit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError
from hlomem.jax.trials.constraint_source import asks_what_divides, is_asked_by_caller
from hlomem.jax.trials.source_edits import SourceFile
from hlomem.report.data.sharding.gather_findings import partitioner_warnings
from hlomem.report.data.sharding.subject import Subject, WrittenAt

if TYPE_CHECKING:
    from hlomem.jax.compile.messages import ArgumentLines
    from hlomem.jax.compile.parent import PlannedProgram


def subject_of(planned: PlannedProgram, log: str = "") -> Subject:
    """A compiled program, and where its shardings are written."""
    explained, facts = planned.memory, planned.facts
    return Subject(
        explained.memory,
        explained.space,
        {name: _written_at(at, facts.jit_line) for name, at in facts.argument_lines.items()},
        partitioner_warnings(f"{log}\n{planned.output}"),
        _keyword_line(facts.jit_line, "out_shardings") or None,
        facts.donated,
        is_asked_by_caller,
        _result_lines(facts.jit_line),
        asks_what_divides,
        [WrittenAt((), at.sharding, written=at.written) for at in facts.result_lines],
    )


def _written_at(at: ArgumentLines, jit_line: str) -> WrittenAt:
    """The lines of an argument; where only jax.jit says its sharding, that line first."""
    if at.position < 0:
        return WrittenAt(at.made, at.sharding, at.is_mapped, at.written)
    given = _in_shardings_line(jit_line, at.position)
    return WrittenAt((given,) if given else at.made, at.sharding, written=at.written)


def _in_shardings_line(jit_line: str, position: int) -> str:
    """The line that makes an argument's part of `in_shardings`, else the one that gives it."""
    name, _, number = jit_line.rpartition(":")
    try:
        line = SourceFile(name).assigned_line(int(number), "in_shardings", position)
    except (CommandError, ValueError):
        line = None
    return _keyword_line(jit_line, "in_shardings", position) if line is None else f"{name}:{line}"


def _result_lines(jit_line: str) -> list[str]:
    """The lines of the parts of `out_shardings`, where they are written out."""
    name, _, number = jit_line.rpartition(":")
    try:
        lines = SourceFile(name).keyword_parts(int(number), "out_shardings") if name else []
    except CommandError:
        return []
    return [f"{name}:{line}" for line in lines]


def _keyword_line(jit_line: str, keyword: str, position: int | None = None) -> str:
    """The line of a keyword in a call of jax.jit, or of a part of it; or else that of the call."""
    name, _, number = jit_line.rpartition(":")
    try:
        file = SourceFile(name) if name else None
    except CommandError:
        file = None
    if file is None:
        return jit_line
    return f"{name}:{file.keyword_line(int(number), keyword, position)}"
