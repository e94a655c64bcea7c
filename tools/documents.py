"""The blocks of code in the documents, and how each is known to be true.

In: README.md and docs/*.md. Out: `Block`s, each with what its marker says, a comment directly above
the fence that readers do not see:

    (none)                   `console` and `python` blocks: run by the tests, outputs compared
    <!-- with jax -->        the same, where JAX is installed
    <!-- with libtpu -->     the same, where JAX and libtpu are installed: `make jax`
    <!-- made by NAME -->    written by `tools/shown.py`
    <!-- in PROJECT -->      shell commands, run in a copy of tests/docs/projects/PROJECT
    <!-- file PATH of PROJECT -->  a file that lies there when they run
    <!-- read back -->       text of a dump that is read and printed back
    <!-- checked by TEST --> held by that test, FILE::NAME
    <!-- not run: WHY -->    cannot be run here

`made by` and `in` may end with a need, as in `<!-- in project with libtpu -->`.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]+) -->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_NEED = re.compile(r"(?:^| )with (jax|libtpu)$")
_MODULES = {"": (), "jax": ("jax",), "libtpu": ("jax", "libtpu")}


class Block(NamedTuple):
    """A fenced block of a document."""

    document: str
    line: int
    marker: str
    need: str
    language: str
    text: str

    @property
    def place(self) -> str:
        """The document and line where it begins."""
        return f"{self.document}:{self.line}"

    @property
    def is_possible(self) -> bool:
        """Whether all it needs is installed here."""
        return all(find_spec(name) is not None for name in _MODULES[self.need])


def block_of(match: re.Match[str], document: str = "", line: int = 0) -> Block:
    """The block that a match of `FENCED` is."""
    marker = match["marker"] or ""
    need = _NEED.search(marker)
    rest = _NEED.sub("", marker)
    return Block(document, line, rest, need[1] if need else "", match["language"], match["text"])


def blocks() -> list[Block]:
    """All blocks of all documents."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in FENCED.finditer(text):
            line = text.count("\n", 0, match.start("text"))
            found.append(block_of(match, path.name, line))
    return found
