"""The instructions of a body that say where they come from, found without linking any.

In: the text of a body, laid out as XLA prints it. Out: shape, opcode and metadata of each
instruction that has metadata, as texts; None where that takes more than looking at lines. The
comparison of programs needs nothing else of the instructions inside of fusions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.hlo.text.async_sugar import is_sugared
from hlomem.hlo.text.attributes import METADATA, STRING, nested_brackets
from hlomem.hlo.text.scanner import NAME, SHAPE_AND_OPCODE, has_comment

_MARK = f", {METADATA}"
# The metadata stands outside of brackets and strings, or it is not seen.
_BRACES = nested_brackets(r"\{", 4)
_BEFORE = repeated(rf"""[^\n"'{{}},]++|,(?! metadata=\{{)|{STRING}|{_BRACES}""")
_ROW = lazy_pattern(
    rf"^  (?:ROOT )?%?{NAME} = {SHAPE_AND_OPCODE}"
    rf"(?:{_BEFORE}, ({re.escape(METADATA)}[^\n]*+)|[^\n]*+)$",
    re.ASCII | re.MULTILINE,
)

NamedRow = tuple[str, str, str]
"""Shape, opcode, and what stands from `metadata={` on."""


class NamedRows(NamedTuple):
    """The instructions of a body that have metadata."""

    rows: list[NamedRow]
    is_complete: bool
    """Whether every instruction has metadata."""


def named_rows(body: str) -> NamedRows | None:
    """The instructions of a body that have metadata; None where they have to be read."""
    found: list[NamedRow] = _ROW.findall(body)
    rows = [row for row in found if row[2]]
    is_plain = len(found) == body.count("\n") and len(rows) == body.count(_MARK)
    if not is_plain or has_comment(body, 0, len(body)):
        return None
    if any(map(is_sugared, {opcode for _, opcode, _ in rows})):
        return None  # such a row stands for two instructions
    return NamedRows(rows, len(rows) == len(found))
