"""One self-contained file; data is compressed JSON, so that names are never part of markup."""

from __future__ import annotations

import base64
import html
import re
import zlib
from itertools import chain
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hlomem.base.source import visible
from hlomem.report.json import encode

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


TEMPLATES = Path(__file__).parent / "templates"
IMPORT = re.compile(r'\nimport \{([^}]*)\} from "\./(\w+)\.js";')
EXPORT = re.compile(r"\nexport (?=(?:async )?(?:function|class|const) ([\w$]+))")
_LITERAL_OR_COMMENT = re.compile(
    r"//.*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/"
    r'|("[^"\\\n]*(?:\\.[^"\\\n]*)*"'  # a string
    r"|`[^`\\\n]*(?:\\.[^`\\\n]*)*`"  # a template
    r"|/(?:(?<=[(,=]/)|(?<=[(,=] /))(?:[^/\\\n]|\\.)+/)"  # a pattern, where no division can be
)
_LITERAL = "\0"
"""Placeholder for literals while spaces are removed."""
_SPACED = (
    *(" = ", " => ", " === ", " !== ", " ? ", " : ", " && ", " || ", " ?? "),
    *(" + ", " - ", " * ", " / ", " < ", " > ", " <= ", " >= "),
    *(", ", ": ", "; ", " {", "{ ", " }", " (", ") "),
)
"""As a formatter writes them; operators before brackets."""
_OPENING, _CLOSING = "([{,;", ")]}.?:"
"""Characters after or before which a line break is redundant."""


def bundle(main: str) -> str:
    """An ES module of `templates/` and its imports as one script, which expects `modules`.

    Semicolons are required, no sign may follow a plus or minus, template literals are single-line
    and not nested. Tests enforce this.
    """
    made: dict[str, str] = {}
    _add_module(main, made)
    return "\n".join(made.values())


def _add_module(name: str, made: dict[str, str]) -> None:
    """Add a module after its imports, as an object of its exports."""
    text = "\n" + (TEMPLATES / f"{name}.js").read_text(encoding="utf-8")
    for _, imported in IMPORT.findall(text):
        if imported not in made:
            _add_module(imported, made)
    exported = ", ".join(EXPORT.findall(text))
    body = IMPORT.sub(r"\nconst {\1} = modules.\2;", EXPORT.sub("\n", text))
    made[name] = _squeeze(f"modules.{name} = (() => {{ {body} return {{ {exported} }} }})();")


def _squeeze(script: str) -> str:
    """The same tokens without comments and redundant spaces; literals are set aside first."""
    parts = _LITERAL_OR_COMMENT.split(script)
    literals = [literal or "" for literal in parts[1::2]]
    code = re.sub(r"\n\s+", "\n", _LITERAL.join(parts[::2]))
    for spaced in _SPACED:
        code = code.replace(spaced, spaced.strip())
    for character in _OPENING:
        code = code.replace(f"{character}\n", character)
    for character in _CLOSING:
        code = code.replace(f"\n{character}", character)
    rest = code.split(_LITERAL)
    squeezed = "".join(chain.from_iterable(zip(rest, [*literals, ""], strict=True)))
    return re.sub(r"\n\n+", "\n", squeezed)
