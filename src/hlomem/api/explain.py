"""`hlomem.explain`: a dump in; what its memory is for, when, and from which lines out.

    memory = hlomem.explain("xla_dump/")
    memory.peak.size, memory.by("line"), memory["copy.3"].explain()

Ties the reports to one memory space of one dump. Each is computed when first asked for; printed,
it is the screen of `hlomem summary`, in a notebook too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.api.opening import open_memory
from hlomem.api.tables import Table
from hlomem.base.atomic_files import write_files
from hlomem.base.sizes import format_bytes
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.explain import explain as explain_buffer
from hlomem.report.data.holes import build_holes
from hlomem.report.data.lookup import check_choice, find_buffer, find_space
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import KEYS, build_snapshot
from hlomem.report.data.role_shares import build_role_shares
from hlomem.report.data.summary import build_summary
from hlomem.report.screens.explain_text import draw_explanation
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import PIPED_WIDTH, plain, styled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from hlomem.api.opening import Subject
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.capacity import Capacity
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
    from hlomem.report.data.timeline import Timeline
    from hlomem.report.screens.text import Line

_MAX_NAME = 80


def explain(
    subject: Subject,
    *,
    module: str | None = None,
    program: str | HloModule | None = None,
    machine: Machine | None = None,
    space: str | None = None,
    results: Sequence[str] = (),
) -> MemoryExplanation:
    """An explanation of the memory of a dump, of a plan, or of a program that is planned for it.

    `subject` is what `hlomem.load` takes, a dump, a plan, HLO text or a module, or a compiled
    program: anything with `as_text()`, such as `jax.jit(f).lower(x).compile()`. `module` chooses a
    program of a folder, by default the largest. `program` is the module a dump plans, or its text,
    where it does not lie beside the dump. `space` names a memory space or its color. `results` are
    the paths of what the program returns, `[0]['w']`, in order; arguments bring theirs along.
    """
    memory = open_memory(
        subject, module=module, program=program, backend=machine or "", results=results
    )
    return MemoryExplanation(memory, find_space(memory, space))


class _Screen(ABC):
    """Something that shows itself wherever people look at it."""

    @abstractmethod
    def _lines(self) -> list[Line]:
        """The lines of its screen."""

    def __str__(self) -> str:
        return plain(self._lines())

    def __rich__(self) -> Text:
        return styled(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class MemoryExplanation(_Screen):
    """One memory space of one dump; its numbers are those of the commands."""

    def __init__(self, memory: MemoryView, space: Space, capacity: Capacity | None = None) -> None:
        self.memory = memory
        self.space = space
        self.capacity = capacity
        """The memory of the device, where that is known."""

    def __repr__(self) -> str:
        title, size = self.memory.dump.title, format_bytes(self.space.size)
        return f"<MemoryExplanation {title[-_MAX_NAME:]!r}: {size} in {self.space.name}>"

    @cached_property
    def buffers(self) -> Table[Buffer]:
        """Every value in its place."""
        return Table(buffer for buffer in self.memory.buffers if buffer.color == self.space.color)

    @property
    def timeline(self) -> Timeline | None:
        """The bytes alive at each step; None where the dump has no live ranges."""
        return self.memory.timeline(self.space.color)

    @cached_property
    def roles(self) -> tuple[RoleShare, ...]:
        """The bytes by purpose; they add up to `space.size`."""
        return build_role_shares(self.memory, self.space.color)

    @cached_property
    def peak(self) -> Snapshot:
        """The step at which most is alive, and the buffers alive then."""
        return build_snapshot(self.memory, self.space)

    def at(self, step: int | str) -> Snapshot:
        """The buffers alive at a step, or while an instruction runs."""
        return build_snapshot(self.memory, self.space, at=str(step))

    def by(self, key: Key, at: int | str | None = None) -> Table[Row]:
        """The bytes alive at the peak, or at a step, by line, op, scope, role, shape or arg."""
        check_choice("key", key, KEYS)
        step = None if at is None else str(at)
        return Table(build_snapshot(self.memory, self.space, at=step, by=key).rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The buffers as dictionaries, by the names of their fields."""
        return self.buffers.to_dicts()

    def to_pandas(self) -> Any:
        """The buffers as a `pandas.DataFrame`."""
        return self.buffers.to_pandas()

    @cached_property
    def summary(self) -> Summary:
        """The one screen, as data."""
        return build_summary(self.memory, self.space, self.capacity)

    @cached_property
    def padding(self) -> Padding:
        """The bytes that layouts cost."""
        return build_padding(self.memory, self.space)

    @cached_property
    def copies(self) -> Copies:
        """The copies in the program, and why they exist."""
        return build_copies(self.memory, self.space)

    @cached_property
    def donation(self) -> Donation:
        """The fate of each argument's memory."""
        return build_donation(self.memory, self.space)

    @cached_property
    def holes(self) -> Holes:
        """The bytes packing lost."""
        return build_holes(self.memory, self.space)

    def write_page(self, path: str | Path, *, force: bool = False) -> None:
        """Write the report as one page that opens offline, whole or not at all.

        A file that is there is replaced only with `force`.
        """
        target = Path(path)
        write_files(target.parent, {target.name: [self._page().encode()]}, force=force)

    def __getitem__(self, name: str) -> BufferExplanation:
        """The buffer of a name as XLA prints it, or of an argument; a KeyError if there is none."""
        return BufferExplanation(self.memory, find_buffer(self.memory, name))

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.buffers)

    def _lines(self) -> list[Line]:
        return draw_summary(self.summary, PIPED_WIDTH)

    def _repr_html_(self) -> str:
        """The page of `hlomem html`, in a frame."""
        from hlomem.report.page.notebook import in_frame  # noqa: PLC0415 - scripts need no page

        return in_frame(self._page())

    def _page(self) -> str:
        from hlomem.api.advise import build_advised_page  # noqa: PLC0415 - as above
        from hlomem.report.page.html import format_page  # noqa: PLC0415 - as above

        return format_page([build_advised_page(self.memory, self.capacity)])


class BufferExplanation(_Screen):
    """A buffer, and its story."""

    def __init__(self, memory: MemoryView, buffer: Buffer) -> None:
        self._memory = memory
        self.buffer = buffer

    def __repr__(self) -> str:
        size = format_bytes(self.buffer.size)
        return f"<BufferExplanation {self.buffer.name[:_MAX_NAME]!r}: {size}, {self.buffer.role}>"

    def explain(self) -> Explanation:
        """Why it exists, why this size, why so long, why there, why not in place."""
        return explain_buffer(self._memory, self.buffer)

    def _lines(self) -> list[Line]:
        return draw_explanation(self.explain(), PIPED_WIDTH)
