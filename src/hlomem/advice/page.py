"""The data of a page with advice that was tried.

In: a `MemoryView`. Out: `hlomem.report.page.page.Page`, with advice where the program is not too
large for trying changes in passing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.page.page import Page, build_page, is_quick

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.memory import MemoryView


def build_advised_page(memory: MemoryView, capacity: Capacity | None = None) -> Page:
    """The data of a report and what `hlomem advise` says of the program."""
    if not is_quick(memory):
        return build_page(memory, capacity)
    from hlomem.advice.advising import advise_on  # noqa: PLC0415 - a third of all imports

    return build_page(memory, capacity, advise_on(memory))
