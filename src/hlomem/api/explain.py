"""`hlomem.explain`: a dump in; what its memory is for, when, and from which lines out.

    memory = hlomem.explain("xla_dump/")
    memory.peak.size, memory.by("line"), memory["copy.3"].explain()

Ties the reports to one memory space of one dump. Each is computed when first asked for; printed,
it is the screen of `hlomem summary`, in a notebook too.
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.api.load import find_program, load
from hlomem.dump.dump import Dump
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.explain import explain as explain_buffer
from hlomem.report.data.holes import build_holes
from hlomem.report.data.lookup import find_buffer, find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import build_snapshot
from hlomem.report.data.role_shares import build_role_shares
from hlomem.report.data.summary import build_summary
from hlomem.report.screens.explain_text import draw_explanation
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import PIPED_WIDTH, plain, styled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from hlomem.api.plan import Plan
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine
    from hlomem.report.data.copies import Copies
    from hlomem.report.data.donation import Donation
    from hlomem.report.data.explain import Explanation
    from hlomem.report.data.holes import Holes
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.report.data.padding import Padding
    from hlomem.report.data.peak import Key, Row, Snapshot
    from hlomem.report.data.role_shares import RoleShare
    from hlomem.report.data.summary import Summary
    from hlomem.report.screens.text import Line


def explain(
    subject: str | Path | Dump | Plan,
    *,
    program: str | HloModule | None = None,
    machine: Machine | None = None,
    space: str | None = None,
) -> MemoryExplanation:
    """What the memory of a dump, or of a plan, is for.

    `subject` is what `hlomem.load` takes, a dump or a plan. `program` is the module it plans, or
    its text; a dump's path finds it by name. `space` names a memory space or its color.
    """
    if isinstance(program, str):
        program = hlo.parse(program)
    if isinstance(subject, str | Path):
        if program is None and "\n" not in str(subject):
            program = find_program(str(subject))
        subject = load(subject)
        program = subject.module or program
    elif not isinstance(subject, Dump):
        program = program or subject.stages.module
        subject = subject.dump
    memory = build_memory(subject, program, machine)
    return MemoryExplanation(memory, find_space(memory, space))


class _Screen:
    """Something that shows itself wherever people look at it."""

    def _lines(self) -> list[Line]:
        raise NotImplementedError

    def __str__(self) -> str:
        return plain(self._lines())

    def __rich__(self) -> Text:
        return styled(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class MemoryExplanation(_Screen):
    """One memory space of one dump; its numbers are those of the commands."""

    def __init__(self, memory: MemoryView, space: Space) -> None:
        self.memory = memory
        self.space = space

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every value in its place."""
        return tuple(each for each in self.memory.buffers if each.color == self.space.color)

    @cached_property
    def roles(self) -> tuple[RoleShare, ...]:
        """What the bytes are for; they add up to `space.size`."""
        return build_role_shares(self.memory, self.space.color)

    @cached_property
    def peak(self) -> Snapshot:
        """When most is alive, and who."""
        return build_snapshot(self.memory, self.space)

    def at(self, step: int | str) -> Snapshot:
        """Who is alive at a step, or when an instruction runs."""
        return build_snapshot(self.memory, self.space, at=str(step))

    def by(self, key: Key, at: int | str | None = None) -> tuple[Row, ...]:
        """The bytes alive at the peak, or at a step, by line, op, scope, role, shape or arg."""
        step = None if at is None else str(at)
        return build_snapshot(self.memory, self.space, at=step, by=key).rows

    @cached_property
    def summary(self) -> Summary:
        """The one screen, as data."""
        return build_summary(self.memory, self.space)

    @cached_property
    def padding(self) -> Padding:
        """What layouts cost."""
        return build_padding(self.memory, self.space)

    @cached_property
    def copies(self) -> Copies:
        """What is there twice, and why."""
        return build_copies(self.memory, self.space)

    @cached_property
    def donation(self) -> Donation:
        """What becomes of each argument's memory."""
        return build_donation(self.memory, self.space)

    @cached_property
    def holes(self) -> Holes:
        """What packing lost."""
        return build_holes(self.memory, self.space)

    def __getitem__(self, name: str) -> BufferExplanation:
        """The buffer of a name as XLA prints it."""
        return BufferExplanation(self.memory, find_buffer(self.memory, name))

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.buffers)

    def _lines(self) -> list[Line]:
        return draw_summary(self.summary, PIPED_WIDTH)


class BufferExplanation(_Screen):
    """A buffer, and its story."""

    def __init__(self, memory: MemoryView, buffer: Buffer) -> None:
        self._memory = memory
        self.buffer = buffer

    def explain(self) -> Explanation:
        """Why it exists, why this size, why so long, why there, why not in place."""
        return explain_buffer(self._memory, self.buffer)

    def _lines(self) -> list[Line]:
        return draw_explanation(self.explain(), PIPED_WIDTH)
