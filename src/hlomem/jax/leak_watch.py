"""`hlomem.jax.leaks()`: what a loop keeps that it should not, by line.

    with hlomem.jax.leaks() as watch:
        for batch in batches:
            state, loss = step(state, batch)
            watch.mark()
    print(watch)

In: marks at the same point of a loop. Out: the growth between them (`hlomem.job.leaks`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.job.leaks import find_leaks
from hlomem.proto.pprof import read_pprof
from hlomem.report.screens.leaks_text import draw_leaks
from hlomem.report.screens.text import PIPED_WIDTH, plain

if TYPE_CHECKING:
    from hlomem.job.leaks import Leaks
    from hlomem.proto.pprof import Holding


def leaks() -> LeakWatch:
    """Watch what grows between marks of a loop."""
    return LeakWatch()


class LeakWatch:
    """Device memory profiles of a loop, and what grew between them."""

    def __init__(self) -> None:
        self._jax: Any = import_module("jax")
        self._marks: list[tuple[str, list[Holding]]] = []

    def __enter__(self) -> LeakWatch:
        return self

    def __exit__(self, *_: object) -> None:
        """Marks are the loop's own."""

    def mark(self, name: str = "") -> None:
        """Take a device memory profile here."""
        data = self._jax.profiler.device_memory_profile()
        label = name or f"mark {len(self._marks) + 1}"
        self._marks.append((label, read_pprof(data, label)))

    @property
    def data(self) -> Leaks:
        """The growth from the first mark to the last."""
        if len(self._marks) < 2:
            raise CommandError("two marks are needed, at the same point of a loop")
        return find_leaks(self._marks)

    def __str__(self) -> str:
        return plain(draw_leaks(self.data, PIPED_WIDTH))
