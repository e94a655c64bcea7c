"""Bundles the ES modules of `templates/` into one script for a page that loads nothing.

    export const b = a + 1;         modules.y=(()=>{const{a}=modules.x;const b=a+1;return{b}})();

Semicolons are required, no sign may follow a plus or minus, template literals are single-line and
not nested. Tests enforce this.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

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
    """A module and its imports as one script, which expects an object `modules`."""
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
