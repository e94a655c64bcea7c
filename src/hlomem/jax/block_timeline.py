"""`with hlomem.jax.timeline() as t:`: the memory of a device while a block runs.

In: a block of code. Out: the timeline of its allocations (`hlomem.job.timeline`), with the lines of
arrays that were there before, of those that are there after, and of every program's plan. JAX's
profiler writes a trace to a temporary folder, which is gone afterwards.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hlomem.api.job_inputs import timeline_of
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError, HlomemError
from hlomem.jax.instants import instant_of
from hlomem.job.array_lines import ArrayLines
from hlomem.proto.pprof import read_pprof
from hlomem.report.screens.job_timeline_text import draw_job_timeline
from hlomem.report.screens.text import PIPED_WIDTH, plain

if TYPE_CHECKING:
    from hlomem.job.timeline import Timeline, TimelineBuilder

_BFC_LEVEL = 2
"""The level of the host's tracer at which allocators write events."""


def timeline(*, python: bool = False) -> BlockTimeline:
    """Trace the memory of a block; `python` traces its Python calls, too, which is slower."""
    return BlockTimeline(python=python)


class BlockTimeline:
    """The memory of a block, which can be asked once the block has ended."""

    def __init__(self, *, python: bool) -> None:
        self._python = python
        self._jax: Any = import_module("jax")
        self._folder = TemporaryDirectory(prefix="hlomem-")
        self._builder: TimelineBuilder | None = None

    def __enter__(self) -> BlockTimeline:
        jax = self._jax
        self._before = read_pprof(jax.profiler.device_memory_profile(), "before the block")
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level = _BFC_LEVEL
        options.python_tracer_level = int(self._python)
        try:
            jax.profiler.start_trace(self._folder.name, profiler_options=options)
        except RuntimeError as error:
            raise CommandError(f"the profiler cannot be started: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        after = instant_of()
        self._jax.profiler.stop_trace()
        found = sorted(Path(self._folder.name).rglob("*.xplane.pb"))
        data = found[-1].read_bytes() if found else b""
        with suppress(OSError):
            self._folder.cleanup()
        if not data:
            return
        by_address = {one.address: one.line for one in after.arrays if one.address and one.line}
        self._builder = timeline_of(data, "this block", ArrayLines(self._before, by_address))

    def __str__(self) -> str:
        try:
            return plain(draw_job_timeline(self.data, PIPED_WIDTH))
        except HlomemError as error:
            return str(error)

    @property
    def builder(self) -> TimelineBuilder:
        """All allocators of the block."""
        if self._builder is None:
            raise CommandError("the block has not ended, or the profiler wrote nothing")
        return self._builder

    @property
    def data(self) -> Timeline:
        """The timeline, with who held the peak."""
        return self.builder.build()

    @property
    def peak(self) -> int:
        """The most bytes in use in the block."""
        return self.data.peak

    def at(self, seconds: float, allocator: str | None = None) -> Timeline:
        """The timeline, with who held memory at a time."""
        return self.builder.build(allocator, repr(seconds))

    def write_page(self, path: str | Path, *, force: bool = False) -> None:
        """Write the timeline as a page that zooms."""
        from hlomem.report.page.job_page import format_timeline  # noqa: PLC0415 - only a page

        target = Path(path)
        page = format_timeline(self.builder, self.data)
        write_files(target.parent, {target.name: [page.encode()]}, force=force)
