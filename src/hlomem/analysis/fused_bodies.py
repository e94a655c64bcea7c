"""The contents of fused bodies, read off their text, if any, without opening them.

Most instructions of an optimised module are inside fusions, where they matter little: their values
take ids, and a body may write in place. Both are known from the opcodes alone, and those from one
regular expression per body. Of the thousands of bodies of a model most have the form of another,
whose text differs in digits only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.defined_parts import count_defined
from hlomem.base.named_tuples import NamedTuple
from hlomem.base.native import kernel
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import CALLING, DEFINE_NOTHING, KNOWN_OPCODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import BodyPlace, HloComputation
    from hlomem.hlo.opcodes import Opcode

# Begins with a literal, which `re` finds much faster than the beginning of a line; and anything but
# one character is passed over much faster than anything but several. A match that went on into the
# next line would leave fewer matches than lines, which is noticed.
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
"""An instruction of a body: name, opcode and what stands in the parentheses."""

_KERNEL = "hlomem.hlo.text._scanner"
_body_form: Callable[[str, int, int], bytes | None] | None = kernel(_KERNEL, "body_form")
_operand_rows: Callable[[str, int, int], list[Row] | None] | None = kernel(_KERNEL, "operand_rows")


def operand_names(inner: str) -> list[str]:
    """The names in what stands in the parentheses of a row."""
    if inner.startswith("%") and "/" not in inner:
        return inner[1:].split(", %")
    return [_BEFORE_NAME.sub("", operand) for operand in inner.split(", ")]


def operand_rows(text: str, start: int, end: int) -> list[Row] | None:
    """The instructions of a body whose place is given; None where they must be read to know."""
    # `%fusion#1` stands for an instruction that has no row.
    if text.find("#", start, end) >= 0:
        return None
    if _operand_rows is not None and text.isascii():
        rows = _operand_rows(text, start, end)
        if rows is not None:
            return rows
    return match_operand_rows(text, start, end)


def match_operand_rows(text: str, start: int, end: int) -> list[Row] | None:
    """The same by a pattern, for any body in which nothing is implied."""
    rows: list[Row] = _ROW.findall(text, start, end)
    return rows if len(rows) == text.count("\n", start, end) else None


def form_of(text: str, start: int, end: int) -> bytes:
    """A key that bodies share only if their facts are the same, or their opcodes have digits.

    Natively it is made of the opcodes, else it is the body with all digits alike.
    """
    if _body_form is not None and text.isascii():
        form = _body_form(text, start, end)
        if form is not None:
            return form
    return text[start:end].encode("utf-8", "surrogatepass").translate(_BLURRED)


class FusedBody(NamedTuple):
    """The facts about a body that follow from its opcodes."""

    instruction_count: int
    value_count: int
    opcodes: frozenset[Opcode]
    may_call: bool
    """Whether an opcode is one that calls computations, or nobody knows."""


class FusedBodies(dict["HloComputation", FusedBody]):
    """The bodies of the fusions of one module, looked at when asked about."""

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
        """The instructions of a body as its text has them; None where they must be read to know."""
        place = computation.body_place
        return None if place is None else operand_rows(*place)

    def _read(self, computation: HloComputation, place: BodyPlace, form: bytes) -> FusedBody:
        """The contents of a body, remembered for others of the same form."""
        text, start, end = place
        body = _read_arrays(text[start:end])
        if body is None:
            return _outlined(computation)
        if body.opcodes <= _DIGITLESS:
            self._known_forms[form] = body
        return body


def _read_arrays(text: str) -> FusedBody | None:
    """The contents of a body, read off its text; None where some result is a tuple."""
    opcodes: list[Opcode] = _ARRAY_OPCODE.findall(text)
    if len(opcodes) != text.count("\n") or "#" in text:
        return None
    different = frozenset(opcodes)
    count = len(opcodes)
    if not different.isdisjoint(DEFINE_NOTHING):
        count -= sum(opcode in DEFINE_NOTHING for opcode in opcodes)
    return FusedBody(len(opcodes), count, different, not different <= _CALLING_NOTHING)


def _outlined(computation: HloComputation) -> FusedBody:
    """The contents of a body, found by reading its shapes."""
    outline = computation.outline()
    opcodes = frozenset(opcode for _, opcode in outline)
    value_count = sum(count_defined(shape, opcode) for shape, opcode in outline)
    return FusedBody(len(outline), value_count, opcodes, not opcodes <= _CALLING_NOTHING)
