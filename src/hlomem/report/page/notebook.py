"""The report of a dump or a plan for Jupyter's `_repr_html_`, in a frame."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.report.data.memory import build_memory
from hlomem.report.page.html import format_page
from hlomem.report.page.page import build_page

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule

_STYLE = "width:100%;height:720px;border:1px solid #8884;border-radius:6px"


def format_frame(dump: Dump, module: HloModule | None = None, *, is_planned: bool = False) -> str:
    """The report as an `iframe`; just the name of a dump without allocations."""
    if dump.assignment is None:
        return f"<pre>{html.escape(visible(dump.name))}: no allocations</pre>"
    memory = build_memory(dump, module, is_planned=is_planned)
    return in_frame(format_page([build_page(memory)]))


def in_frame(page: str) -> str:
    return f'<iframe style="{_STYLE}" srcdoc="{html.escape(page)}"></iframe>'
