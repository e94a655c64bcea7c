"""The parts of a printed instruction, found on demand; `hlomem.hlo.text` reads whole modules."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import CALL_IN_TEXT, NAME_IN_TEXT, PAYLOAD_OPCODES, Opcode, as_opcode
from hlomem.hlo.text.attributes import (
    Metadata,
    find_metadata,
    nested_brackets,
    read_metadata,
    read_op_name,
)
from hlomem.hlo.text.shape_parser import INDEX_COMMENT, parse_shape_text

if TYPE_CHECKING:
    from hlomem.dump.records import ShapeIndex
    from hlomem.hlo.shape import Shape

# No opcode has one letter: `b(...)` is a shape. Messages omit the shape.
_LINE = lazy_pattern(r"(?:ROOT )?%?([^ ]++) = (?:([^ ]*+(?: [^ ]*+)*?) )??([a-z][a-z0-9-]+)\(")
_SHAPE = nested_brackets(r"\(", 8) + r"|[a-z][a-z0-9]*+\[[^\[\]]*+\](?:\{[^{}]*+\})?"
_OPERAND = lazy_pattern(r"%([\w.-]++)")
_SHAPED_OPERAND = lazy_pattern(rf"(?:({_SHAPE}) )?%[\w.-]++")
_NUMBER = lazy_pattern(r"[0-9]{1,9}")
_PARENTHESIS = lazy_pattern(r"[()]")
OPERAND_PAIRS = "output_to_operand_aliasing={"
_PAIR = lazy_pattern(r"\{([0-9, ]*)\}: \(([0-9]{1,9}), \{([0-9, ]*)\}")
_SLICE = lazy_pattern(r"\[([0-9]{1,18}):")
_THREAD = lazy_pattern(r'async_execution_thread="([^"]*)"')
_TARGET = lazy_pattern(r'custom_call_target="([^"]*)"')


class PrintedInstruction(Struct, eq=False, dict=True):
    text: str
    name: str
    shape_text: str
    """Empty if the line omits it."""
    opcode: Opcode
    start: int
    """The offset of the operands."""

    @cached_property
    def shape(self) -> Shape:
        """The shape; raises if the text is not a shape."""
        return parse_shape_text(self.shape_text)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        if self.opcode in PAYLOAD_OPCODES:
            return ()
        return tuple(_OPERAND.findall(self.text, self.start, self._end))

    @property
    def operand_shapes(self) -> tuple[str, ...]:
        """The printed shapes of the operands; empty for those without."""
        if self.opcode in PAYLOAD_OPCODES:
            return ()
        return tuple(_SHAPED_OPERAND.findall(INDEX_COMMENT.sub("", self.inner)))

    @property
    def inner(self) -> str:
        return self.text[self.start : self._end]

    @property
    def number(self) -> int | None:
        """The number of a parameter; None for other instructions."""
        found = _NUMBER.fullmatch(self.inner) if self.opcode == "parameter" else None
        return int(found[0]) if found else None

    @property
    def tail(self) -> str:
        return self.text[self._end + 1 :]

    @cached_property
    def _end(self) -> int:
        return _closing(self.text, self.start)

    @cached_property
    def metadata(self) -> Metadata:
        return read_metadata(self.tail)

    @cached_property
    def op_name(self) -> str:
        return self.find_op_name()

    def find_op_name(self) -> str:
        """`op_name` without caching, which costs more than finding it."""
        start = find_metadata(self.text, _closing(self.text, self.start))
        return "" if start < 0 else read_op_name(self.text, start)

    @property
    def callees(self) -> dict[str, list[str]]:
        return {
            attribute: NAME_IN_TEXT.findall(names or name)
            for attribute, names, name in CALL_IN_TEXT.findall(self.tail)
        }

    @property
    def target(self) -> str:
        found = _TARGET.search(self.tail)
        return found[1] if found else ""

    @property
    def thread(self) -> str:
        """The thread of an asynchronous operation; empty for the main one."""
        found = _THREAD.search(self.tail)
        return found[1] if found else ""

    @property
    def slice_starts(self) -> tuple[int, ...]:
        """The start of a slice in each dimension; empty for other instructions."""
        _, found, rest = self.tail.partition("slice={")
        return tuple(map(int, _SLICE.findall(rest.partition("}")[0]))) if found else ()

    @property
    def operand_pairs(self) -> tuple[tuple[ShapeIndex, int, ShapeIndex], ...]:
        """`output_to_operand_aliasing`: output index, operand number, index in the operand."""
        if OPERAND_PAIRS not in self.text:
            return ()
        rest = self.tail.partition(OPERAND_PAIRS)[2]
        return tuple(
            (_index(output), int(operand), _index(inside))
            for output, operand, inside in _PAIR.findall(rest.partition(")}")[0] + ")}")
        )


def parse_instruction_line(text: str) -> PrintedInstruction | None:
    match = _LINE.match(text)
    if match is None:
        return None
    name, shape, opcode = match.groups("")
    return PrintedInstruction(text, name, shape, as_opcode(opcode), match.end())


def source_of(metadata: Metadata) -> str:
    """`file:line` of the program, if known."""
    if not metadata.source_line:
        return metadata.source_file
    return f"{metadata.source_file}:{metadata.source_line}" if metadata.source_file else ""


def _index(text: str) -> ShapeIndex:
    return tuple(map(int, _NUMBER.findall(text)))


def _closing(text: str, start: int) -> int:
    """The offset of the parenthesis that closes the one before `start`."""
    end = text.find(")", start)
    if end >= 0 and text.find("(", start, end) < 0:
        return end
    depth = 1
    for match in _PARENTHESIS.finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)
