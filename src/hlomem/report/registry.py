"""The reports on one memory space: how each is built, drawn and introduced.

A report named `padding` is `build_padding` and, where something could be saved, `hint_of` of
`report/data/padding.py`, and `draw_padding` of `report/screens/padding_text.py`. The row below
makes it a command, a part of `summary` and an entry of what the tools check. Modules are imported
when a report is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.records import Record
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.screens.text import Line


class Report(NamedTuple):
    """One report; `name` is that of its modules and functions."""

    name: str
    help: str
    """The help of its command; the list of commands shows the first line alone."""

    @property
    def build(self) -> Callable[[MemoryView, Space], Record]:
        """A memory space → plain data."""
        build: Callable[[MemoryView, Space], Record] = getattr(self._data, f"build_{self.name}")
        return build

    @property
    def draw(self) -> Callable[[Any, int], list[Line]]:
        """That data → lines of so many columns."""
        screen = import_module(f"hlomem.report.screens.{self.name}_text")
        draw: Callable[[Any, int], list[Line]] = getattr(screen, f"draw_{self.name}")
        return draw

    def hint_of(self, data: Record) -> Hint | None:
        """The saving this report suggests; None where there is none."""
        hint: Hint | None = self._data.hint_of(data)
        return hint

    @property
    def _data(self) -> Any:
        return import_module(f"hlomem.report.data.{self.name}")


REPORTS = {
    "padding": Report(
        "padding",
        """Show which arrays are larger in memory than their elements.

    On TPU a layout has tiles, and an array fills whole ones: 513 rows in tiles of 8 take 520.
    Shapes are listed by what they cost at the peak, each with the dimensions that grow.
    """,
    ),
    "copies": Report(
        "copies",
        """Show copies that cost memory, and why each is made.

    XLA copies to change a layout, to move a value to another memory space, and to keep a value
    that something else would overwrite.
    """,
    ),
    "donate": Report(
        "donation",
        """Show which arguments give their memory to results, and which could.

    A donated argument (JAX: donate_argnums) is overwritten by a result of the same shape, layout
    and memory space, once nobody reads it any more. The rest says why not, and what it would save.
    """,
    ),
    "holes": Report(
        "holes",
        """Show memory that is reserved for temporaries but never filled.

    An allocation is larger than the most that is alive in it at once when a buffer that stays lies
    above bytes that are free. Each such hole is shown with the buffer above it.
    """,
    ),
}
"""By the command's name."""
