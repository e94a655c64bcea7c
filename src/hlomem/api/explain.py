"""`hlomem.explain`: the reports on one memory space of a dump.

    memory = hlomem.explain("xla_dump/")
    memory.peak.size, memory.by("line"), memory["copy.3"].explain()

Each report is computed on demand; printed, it is the screen of `hlomem summary`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.api.opening import Subject, open_memory
from hlomem.api.tables import Table
from hlomem.base.atomic_files import write_files
from hlomem.base.sizes import format_bytes
from hlomem.report.data.copies import Copies, build_copies
from hlomem.report.data.donation import Donation, build_donation
from hlomem.report.data.explain import explain as explain_buffer
from hlomem.report.data.holes import Holes, build_holes
from hlomem.report.data.lookup import check_choice, find_buffer, find_space
from hlomem.report.data.occupancy import RoleShare, build_role_shares
from hlomem.report.data.padding import Padding, build_padding
from hlomem.report.data.peak import KEYS, Key, Snapshot, SnapshotRow, build_snapshot
from hlomem.report.data.summary import Summary, build_summary
from hlomem.report.screens.explain_text import draw_explanation
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import PIPED_WIDTH, Line, plain, styled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.capacity import Capacity
    from hlomem.machines.machine import Machine
    from hlomem.report.data.explain import Explanation
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.report.data.timeline import Timeline

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
    """The memory of a dump, of a plan, or of a program that is planned first.

    `subject` is an input of `hlomem.load`, a dump, a plan, HLO text or a module, or a compiled
    program: anything with `as_text()`, such as `jax.jit(f).lower(x).compile()`. `module` chooses a
    program of a folder, by default the largest. `program` is the module of a dump, or its text, if
    it is not next to the dump. `space` is the name or color of a memory space. `results` are the
    paths of the program's outputs, `[0]['w']`, in order.
    """
    memory = open_memory(
        subject, module=module, program=program, backend=machine or "", results=results
    )
    return MemoryExplanation(memory, find_space(memory, space))


class _Screen(ABC):
    """An object that prints as a screen."""

    @abstractmethod
    def _lines(self) -> list[Line]: ...

    def __str__(self) -> str:
        return plain(self._lines())

    def __rich__(self) -> Text:
        return styled(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class MemoryExplanation(_Screen):
    """One memory space of a dump, with the numbers of the commands."""

    def __init__(self, memory: MemoryView, space: Space, capacity: Capacity | None = None) -> None:
        self.memory = memory
        self.space = space
        self.capacity = capacity
        """The device memory, if known."""

    def __repr__(self) -> str:
        title, size = self.memory.dump.title, format_bytes(self.space.size)
        return f"<MemoryExplanation {title[-_MAX_NAME:]!r}: {size} in {self.space.name}>"

    @cached_property
    def buffers(self) -> Table[Buffer]:
        """All values with their locations."""
        return Table(buffer for buffer in self.memory.buffers if buffer.color == self.space.color)

    @property
    def needs(self) -> int:
        """The bytes that must fit: the sum of all allocations."""
        return self.space.size

    @property
    def peak_bytes(self) -> int:
        """The bytes alive at the peak."""
        return self.peak.size

    @property
    def temporaries(self) -> int:
        """The bytes reserved for temporaries."""
        found = self.memory.temporary_allocations(self.space.color)
        return sum(allocation.size for allocation in found)

    @property
    def timeline(self) -> Timeline | None:
        """The bytes alive at each step; None without live ranges."""
        return self.memory.timeline(self.space.color)

    @cached_property
    def roles(self) -> tuple[RoleShare, ...]:
        """The bytes by role; they add up to `space.size`."""
        return build_role_shares(self.memory, self.space.color)

    @cached_property
    def peak(self) -> Snapshot:
        """The peak, and the buffers alive then."""
        return build_snapshot(self.memory, self.space)

    def at(self, step: int | str) -> Snapshot:
        """The buffers alive at a step, or while an instruction runs."""
        return build_snapshot(self.memory, self.space, at=str(step))

    def by(self, key: Key, at: int | str | None = None) -> Table[SnapshotRow]:
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
        """The padding of layouts."""
        return build_padding(self.memory, self.space)

    @cached_property
    def copies(self) -> Copies:
        """The copies, with reasons."""
        return build_copies(self.memory, self.space)

    @cached_property
    def donation(self) -> Donation:
        """The fate of each argument's memory."""
        return build_donation(self.memory, self.space)

    @cached_property
    def holes(self) -> Holes:
        """The fragmentation."""
        return build_holes(self.memory, self.space)

    def write_page(self, path: str | Path, *, force: bool = False) -> None:
        """Write the report as one offline page; with `force`, replace an existing file."""
        target = Path(path)
        write_files(target.parent, {target.name: [self._page().encode()]}, force=force)

    def __getitem__(self, name: str) -> BufferExplanation:
        """The buffer of a name as XLA prints it, or of an argument; else a KeyError."""
        return BufferExplanation(self.memory, find_buffer(self.memory, name))

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.buffers)

    def _lines(self) -> list[Line]:
        return draw_summary(self.summary, PIPED_WIDTH)

    def _repr_html_(self) -> str:
        """The page of `hlomem html`, in a frame."""
        from hlomem.report.page.notebook import in_frame  # noqa: PLC0415 - only for pages

        return in_frame(self._page())

    def _page(self) -> str:
        from hlomem.api.advise import build_advised_page  # noqa: PLC0415 - as above
        from hlomem.report.page.html import format_page  # noqa: PLC0415 - as above

        return format_page([build_advised_page(self.memory, self.capacity)])


class BufferExplanation(_Screen):
    """One buffer."""

    def __init__(self, memory: MemoryView, buffer: Buffer) -> None:
        self._memory = memory
        self.buffer = buffer

    def __repr__(self) -> str:
        size = format_bytes(self.buffer.size)
        return f"<BufferExplanation {self.buffer.name[:_MAX_NAME]!r}: {size}, {self.buffer.role}>"

    def explain(self) -> Explanation:
        """Its purpose, size, lifetime and location, and why it is not written in place."""
        return explain_buffer(self._memory, self.buffer)

    def _lines(self) -> list[Line]:
        return draw_explanation(self.explain(), PIPED_WIDTH)
