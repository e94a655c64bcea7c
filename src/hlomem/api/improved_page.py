"""The page of a better order: the memory in both orders, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem import hlo
from hlomem.api.opening import open_memory
from hlomem.base.source import visible
from hlomem.report.data.diff import Diff, build_diff, name_sides
from hlomem.report.page.front import build_front
from hlomem.report.page.html import format_page
from hlomem.report.page.page import build_page
from hlomem.report.page.waterfall import Reason, Waterfall, build_waterfall

if TYPE_CHECKING:
    from hlomem.api.improve import BetterOrder
    from hlomem.report.data.memory import MemoryView

GIVEN, BETTER = "as given", "better order"


def format_orders(found: BetterOrder) -> str:
    sides = {GIVEN: found.given_text(), BETTER: found.text()}
    memories = [_memory(found, name, text) for name, text in sides.items()]
    difference = _difference(found, name_sides(build_diff(*memories), GIVEN, BETTER))
    pages = [build_page(memory, None) for memory in memories]
    return format_page(pages, difference, build_front(found.report))


def _difference(found: BetterOrder, diff: Diff) -> Waterfall:
    """The way from one order to the other, whose cause is known."""
    made = build_waterfall(replace(diff, causes=()))
    if found.recomputed is not None:
        return _computed_again(found, made, diff)
    if not found.orders:
        return replace(made, answer="No better order was found: both are the current one.")
    names = ", ".join(visible(computation.name) for computation in found.orders)
    reason = Reason(text=f"the same instructions in another order: {names}", delta=diff.delta)
    answer = f"{made.answer} The instructions are the same, in another order."
    return replace(made, answer=answer, causes=(reason,))


def _computed_again(found: BetterOrder, made: Waterfall, diff: Diff) -> Waterfall:
    """The same where some values are recomputed, too."""
    again = found.report.again
    assert again is not None
    ordered = again.ordered - found.report.before
    reasons = [Reason(text="the same instructions in another order", delta=ordered)]
    parts = [f"{again.instructions} instructions run twice"] if again.instructions else []
    parts += [f"{again.stacks} stacked arrays of loops are gone"] if again.stacks else []
    reasons.append(Reason(text=", ".join(parts), delta=diff.delta - ordered))
    answer = f"{made.answer} The order is different, and a few values are recomputed."
    causes = tuple(reason for reason in reasons if reason.delta)
    return replace(made, answer=answer, causes=causes)


def _memory(found: BetterOrder, name: str, text: str) -> MemoryView:
    machine = found.stages.options.machine
    return open_memory(hlo.parse(text), backend=machine, name=name, order="text")
