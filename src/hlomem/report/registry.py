"""The registry of reports on one memory space.

A report `padding` is `build_padding` and `hint_of` in `data/padding.py`, and `draw_padding` in
`screens/padding_text.py`, imported on demand; its row makes it a command and a part of `summary`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.records import Record
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.screens.text import Line


class Report(NamedTuple):
    name: str
    """Of its modules and functions."""
    help: str
    """The help of its command; the list of commands shows only the first line."""

    @property
    def build(self) -> Callable[[MemoryView, Space], Record]:
        build: Callable[[MemoryView, Space], Record] = getattr(self._data, f"build_{self.name}")
        return build

    @property
    def draw(self) -> Callable[[Any, int], list[Line]]:
        screen = import_module(f"hlomem.report.screens.{self.name}_text")
        draw: Callable[[Any, int], list[Line]] = getattr(screen, f"draw_{self.name}")
        return draw

    def hint_of(self, data: Record) -> Hint | None:
        hint: Hint | None = self._data.hint_of(data)
        return hint

    @property
    def _data(self) -> Any:
        return import_module(f"hlomem.report.data.{self.name}")


REPORTS = {
    "padding": Report(
        "padding",
        """Show which arrays are larger in memory than their elements.

    TPU layouts are tiled, and an array fills whole tiles: 513 rows in tiles of 8 take 520. Shapes
    are listed by their padding at the peak, each with the dimensions that grow.
    """,
    ),
    "copies": Report(
        "copies",
        """Show copies that cost memory, and why each is made.

    XLA copies to change a layout, to move a value to another memory space, and to preserve a value
    that would be overwritten.
    """,
    ),
    "donate": Report(
        "donation",
        """Show which arguments are donated to results, and which could be.

    A donated argument (JAX: donate_argnums) is overwritten by a result of the same shape, layout
    and memory space after its last read. For the others the reason and the possible saving are
    shown.
    """,
    ),
    "holes": Report(
        "holes",
        """Show memory that is reserved for temporaries but free at their peak.

    Free bytes below a live buffer cannot be released, so the allocation is larger than its peak
    live bytes. Each such hole is shown with the buffer above it.
    """,
    ),
}
"""By the command's name."""
