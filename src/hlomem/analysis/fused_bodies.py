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
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import CALLING, DEFINE_NOTHING, KNOWN_OPCODES

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation
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


def operand_names(inner: str) -> list[str]:
    """The names in what stands in the parentheses of a row."""
    if inner.startswith("%") and "/" not in inner:
        return inner[1:].split(", %")
    return [_BEFORE_NAME.sub("", operand) for operand in inner.split(", ")]


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
        body = self[computation] = self._read(computation)
        return body

    def rows(self, computation: HloComputation) -> list[Row] | None:
        """The instructions of a body as its text has them; None where they must be read to know."""
        body = computation.body_text
        if body is None:
            return None
        rows: list[Row] = _ROW.findall(body)
        # `%fusion#1` stands for an instruction that has no row.
        if len(rows) != body.count("\n") or "#" in body:
            return None
        return rows

    def _read(self, computation: HloComputation) -> FusedBody:
        text = computation.body_text
        if text is None:
            return _outlined(computation)
        form = text.encode("utf-8", "surrogatepass").translate(_BLURRED)
        known = self._known_forms.get(form)
        if known is None:
            known = _read_arrays(text)
            if known is None:
                return _outlined(computation)
            if known.opcodes <= _DIGITLESS:
                self._known_forms[form] = known
        return known


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
