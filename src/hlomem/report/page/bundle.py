"""The report's scripts as one.

In: the modules of `templates/`, which import each other, so that node and TypeScript read them as
they are. Out: one script for a page that may load nothing: each module is a function called once,
with a scope of its own, after those it imports. Comments and needless spaces are left out.

    export const b = a + 1;         modules.y=(()=>{const{a}=modules.x;const b=a+1;return{b}})();

Only these forms of import and export are understood; semicolons are never left out, no sign follows
a plus or minus, templates lie on one line and not in each other. Tests hold the modules to that.
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
"""Stands for each of them while spaces are removed; no script holds one."""
_SPACED = (
    *(" = ", " => ", " === ", " !== ", " ? ", " : ", " && ", " || ", " ?? "),
    *(" + ", " - ", " * ", " / ", " < ", " > ", " <= ", " >= "),
    *(", ", ": ", "; ", " {", "{ ", " }", " (", ") "),
)
"""As a formatter writes them; signs before brackets, which take the space of one."""
_OPENING, _CLOSING = "([{,;", ")]}.?:"
"""Before or after them no line need end."""


def bundle(main: str) -> str:
    """A module and all it imports as one script; it expects an object `modules`."""
    made: dict[str, str] = {}
    _add_module(main, made)
    return "\n".join(made.values())


def _add_module(name: str, made: dict[str, str]) -> None:
    """Adds a module after those it imports: it becomes an object of what it exports."""
    text = "\n" + (TEMPLATES / f"{name}.js").read_text(encoding="utf-8")
    for _, imported in IMPORT.findall(text):
        if imported not in made:
            _add_module(imported, made)
    exported = ", ".join(EXPORT.findall(text))
    body = IMPORT.sub(r"\nconst {\1} = modules.\2;", EXPORT.sub("\n", text))
    made[name] = _squeeze(f"modules.{name} = (() => {{ {body} return {{ {exported} }} }})();")


def _squeeze(script: str) -> str:
    """The same tokens without comments and needless spaces, about a line for each block.

    Literals are set aside, so that text can be replaced in the whole rest at once.
    """
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
