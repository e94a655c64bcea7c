"""The data of a page, with advice unless the program is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.page.page import Page, build_page, is_quick

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.memory import MemoryView


def build_advised_page(memory: MemoryView, capacity: Capacity | None = None) -> Page:
    if not is_quick(memory):
        return build_page(memory, capacity)
    from hlomem.advice.advising import advise_on  # noqa: PLC0415 - it imports the planner

    return build_page(memory, capacity, advise_on(memory))
