"""The HTML report: one self-contained file from `templates/`.

Data is embedded as compressed JSON, so that names of a dump are never part of the markup.
"""

from __future__ import annotations

import base64
import html
import zlib
from string import Template
from typing import TYPE_CHECKING, Any

from hlomem.base.source import visible
from hlomem.report.json import encode
from hlomem.report.page.bundle import TEMPLATES, bundle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.page.front import PageFront
    from hlomem.report.page.page import Page
    from hlomem.report.page.waterfall import Waterfall

_LEVEL = 2
"""Higher levels hardly compress columns of numbers further."""
_STYLE = "page.css"


def format_page(
    pages: Sequence[Page], difference: Waterfall | None = None, front: PageFront | None = None
) -> str:
    title = " → ".join(visible(page.name) for page in pages)
    return fill("page", title, {"reports": pages, "difference": difference, "front": front})


def fill(main: str, title: str, content: dict[str, Any]) -> str:
    """The page of script `main`, its data and styles embedded."""
    data = zlib.compress(encode(content), _LEVEL)
    own = f"{main}.css"
    more = _template(own) if own != _STYLE and (TEMPLATES / own).exists() else ""
    return Template(_template("frame.html")).substitute(
        title=html.escape(f"{title} · hlomem"),
        style=_template(_STYLE) + more,
        body=_template(f"{main}.html"),
        script=bundle(main),
        data=base64.b64encode(data).decode(),
    )


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
