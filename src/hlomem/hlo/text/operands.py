"""The operands of one instruction: text in, instructions out, whatever form the text has.

    operands ::= (operand ("," operand)*)?
    operand  ::= shape? "%"? name ("#" integer)*

Mirrors `HloParserImpl::ParseOperands`. `%fusion#1` stands for a get-tuple-element that has no line
of its own; it is made here at its first use, as XLA does, and carries XLA's name for it
(`fusion_1`). Operands that are instructions themselves (`add(max(x, y), z)`) are not supported:
XLA never prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.patterns import repeated
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.text.attributes import TextProblem, compiled, nested_brackets
from hlomem.hlo.text.shape_parser import INDEX_COMMENT, ShapeTable

if TYPE_CHECKING:
    import re

    from hlomem.hlo.shape import Shape

_SHAPE = nested_brackets(r"\(", 8) + r"|[a-z][a-z0-9]*+\[[^\[\]]*+\](?:\{[^{}]*+\})?"
_PATH = repeated("#[0-9]{1,9}")
_OPERAND = (
    rf"\s*+(?:(?P<shape>{_SHAPE})\s++)?%?(?P<name>[A-Za-z0-9_.\-]++)(?P<path>{_PATH})"
    r"\s*+(?:(?P<comma>,)|\Z)"
)


class OperandScope(Struct, eq=False):
    """The instructions of a computation that may be operands of the next one."""

    computation: HloComputation
    _shapes: ShapeTable
    instructions: list[HloInstruction] = []
    by_name: dict[str, HloInstruction] = {}

    def resolve(self, text: str) -> tuple[HloInstruction, ...]:
        """The operands a text names; raises `TextProblem` for what cannot be."""
        text = INDEX_COMMENT.sub(lambda comment: " " * len(comment[0]), text)
        match_operand = compiled(_OPERAND).match
        operands: list[HloInstruction] = []
        position, more = 0, bool(text.strip())
        while more:
            match = match_operand(text, position)
            if match is None:
                raise _not_an_operand(text, position)
            operands.append(self._operand(match))
            position, more = match.end(), match["comma"] is not None
        return tuple(operands)

    def _operand(self, match: re.Match[str]) -> HloInstruction:
        operand = self.by_name.get(match["name"])
        if operand is None:
            problem = f"operand `{match['name']}` is not defined above"
            hint = "an instruction may only use what stands before it in the same computation"
            raise TextProblem(problem, *match.span("name"), hint)
        for number in match["path"].split("#")[1:]:
            operand = self._element(operand, int(number), match)
        if match["shape"] is not None:
            self._check_shape(operand, match)
        return operand

    def _element(self, whole: HloInstruction, number: int, match: re.Match[str]) -> HloInstruction:
        """The get-tuple-element that `whole#number` stands for, made at its first use."""
        elements = whole.shape.elements if whole.shape.is_tuple else ()
        if number >= len(elements):
            problem = f"`{whole.name}` has no element {number}"
            hint = f"its shape is `{whole.shape.text_without_layout[:80]}`"
            raise TextProblem(problem, *match.span("path"), hint)
        key = f"{whole.name}#{number}"
        element = self.by_name.get(key)
        if element is None:
            element = self._make_element(whole, number, elements[number])
            self.by_name[key] = element
        return element

    def _make_element(self, whole: HloInstruction, number: int, shape: Shape) -> HloInstruction:
        element = HloInstruction(
            f"{whole.name}_{number}",
            shape,
            "get-tuple-element",
            (whole,),
            "",
            {"index": str(number)},
            self.computation,
            len(self.instructions),
        )
        self.instructions.append(element)
        return element

    def name_implied(self) -> None:
        """Give elements without a line other names than the instructions with one have."""
        for key, element in self.by_name.items():
            while "#" in key and element.name in self.by_name:
                element.name += ".1"

    def _check_shape(self, operand: HloInstruction, match: re.Match[str]) -> None:
        try:
            shape = self._shapes[match["shape"]]
        except ParseError as error:
            start = match.start("shape")
            span = (start + error.span.start, start + error.span.end)
            raise TextProblem(error.problem, *span, error.hint) from None
        if shape.text_without_layout != operand.shape.text_without_layout:
            problem = f"operand `{operand.name}` does not have this shape"
            hint = f"its shape is `{operand.shape.text_without_layout[:80]}`"
            raise TextProblem(problem, *match.span("shape"), hint)


def _not_an_operand(text: str, position: int) -> TextProblem:
    hint = "an operand reads `%name`, `shape %name` or `%name#1`"
    if "(" in text[position:].lstrip()[1:]:
        hint = "an instruction inside the operands of another is not supported: give it a line"
    return TextProblem("expected an operand", position, len(text), hint)
