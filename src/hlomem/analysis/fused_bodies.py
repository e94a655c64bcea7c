"""Facts about fused bodies, scanned from their text without parsing it.

Most instructions of an optimized module are inside fusions, where only their opcodes matter: values
take ids, and a body may write in place. Most bodies differ from another one in digits only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.defined_parts import count_defined
from hlomem.base.native import kernel
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import CALLING, DEFINE_NOTHING, KNOWN_OPCODES, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import BodyPlace, HloComputation

# `re` finds a leading literal much faster than the beginning of a line, and skips the complement of
# one character much faster than that of several. A match across lines would leave fewer matches
# than lines, which is checked.
_ARRAY_OPCODE = lazy_pattern(r"\n  (?:ROOT )?[^ ]++ = [^\s(][^ ]*+ ([a-z][\w\-]*+)\(", re.ASCII)
_CALLING_NOTHING = KNOWN_OPCODES - CALLING
_DIGITLESS = frozenset(opcode for opcode in KNOWN_OPCODES if opcode.replace("-", "").isalpha())
_BLURRED = bytes.maketrans(b"123456789", b"0" * 9)
_BEFORE_NAME = lazy_pattern(r".*[ %/]")
_ROW = lazy_pattern(
    r"\n  (?:ROOT )?%?(\S++) = (?>\([^()\n]*+\)|[^\s(]\S*+) ([a-z][\w\-]*+)\(([^()\n]*+)\)",
    re.ASCII,
)


Row = tuple[str, "Opcode", str]
"""An instruction of a body: name, opcode and the text in its parentheses."""

_KERNEL = "hlomem.hlo.text._scanner"
_body_form: Callable[[str, int, int], bytes | None] | None = kernel(_KERNEL, "body_form")
_operand_rows: Callable[[str, int, int], list[Row] | None] | None = kernel(_KERNEL, "operand_rows")


def operand_names(inner: str) -> list[str]:
    if inner.startswith("%") and "/" not in inner:
        return inner[1:].split(", %")
    return [_BEFORE_NAME.sub("", operand) for operand in inner.split(", ")]


def operand_rows(text: str, start: int, end: int) -> list[Row] | None:
    """The instructions of a body; None if the body must be parsed."""
    if text.find("#", start, end) >= 0:  # `%fusion#1`: an instruction without a row
        return None
    if _operand_rows is not None and text.isascii():
        rows = _operand_rows(text, start, end)
        if rows is not None:
            return rows
    return match_operand_rows(text, start, end)


def match_operand_rows(text: str, start: int, end: int) -> list[Row] | None:
    """`operand_rows` of a body without implied instructions, by a pattern."""
    rows: list[Row] = _ROW.findall(text, start, end)
    return rows if len(rows) == text.count("\n", start, end) else None


def form_of(text: str, start: int, end: int) -> bytes:
    """A key that is equal only for bodies with the same facts, unless their opcodes have digits.

    The native kernel encodes the opcodes; in Python it is the text with all digits replaced.
    """
    if _body_form is not None and text.isascii():
        form = _body_form(text, start, end)
        if form is not None:
            return form
    return text[start:end].encode("utf-8", "surrogatepass").translate(_BLURRED)


class FusedBody(Struct, frozen=True):
    instruction_count: int
    value_count: int
    opcodes: frozenset[Opcode]
    may_call: bool
    """Whether an opcode calls computations or is unknown."""


class FusedBodies(dict["HloComputation", FusedBody]):
    """The bodies of the fusions of one module, scanned on demand."""

    def __init__(self) -> None:
        super().__init__()
        self._known_forms: dict[bytes, FusedBody] = {}

    def __missing__(self, computation: HloComputation) -> FusedBody:
        place = computation.body_place
        if place is None:
            body = _outlined(computation)
        else:
            form = form_of(*place)
            body = self._known_forms.get(form) or self._read(computation, place, form)
        self[computation] = body
        return body

    def rows(self, computation: HloComputation) -> list[Row] | None:
        """The instructions of a body; None if the body must be parsed."""
        place = computation.body_place
        return None if place is None else operand_rows(*place)

    def _read(self, computation: HloComputation, place: BodyPlace, form: bytes) -> FusedBody:
        text, start, end = place
        body = _read_arrays(text[start:end])
        if body is None:
            return _outlined(computation)
        if body.opcodes <= _DIGITLESS:
            self._known_forms[form] = body
        return body


def _read_arrays(text: str) -> FusedBody | None:
    """The facts about a body of arrays only; None for other bodies."""
    opcodes: list[Opcode] = _ARRAY_OPCODE.findall(text)
    if len(opcodes) != text.count("\n") or "#" in text:
        return None
    different = frozenset(opcodes)
    count = len(opcodes)
    if not different.isdisjoint(DEFINE_NOTHING):
        count -= sum(opcode in DEFINE_NOTHING for opcode in opcodes)
    return FusedBody(len(opcodes), count, different, not different <= _CALLING_NOTHING)


def _outlined(computation: HloComputation) -> FusedBody:
    """The facts about any body, from its shapes."""
    outline = computation.outline()
    opcodes = frozenset(opcode for _, opcode in outline)
    value_count = sum(count_defined(shape, opcode) for shape, opcode in outline)
    return FusedBody(len(outline), value_count, opcodes, not opcodes <= _CALLING_NOTHING)
