"""Terms: equal operations on equal terms are one, and have one number."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hlomem.opt.checks.edit import Classes, text_of
from hlomem.opt.checks.one_hot import Term

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape

Value: TypeAlias = "int | tuple[Value, ...]"
"""A term's number, or the values of a tuple's elements."""


class Terms:
    def __init__(self) -> None:
        self.shape_of: dict[int, Shape] = {}
        self.integer_of: dict[int, int] = {}
        """By term the number that it is, where that is known."""
        self._source: dict[int, int] = {}
        """By term of the same bytes in another shape: whose."""
        self._made: dict[int, Term] = {}
        """By term the operation that it is of, for scatters to be looked into."""
        self._number_of: dict[tuple[object, ...], int] = {}
        self._text_of: dict[tuple[object, ...], int] = {}
        """Numbers of all that the text says of an operation but shape and operands."""
        self._classes = Classes(of_values=True, by_indices=True)

    def term(self, shape: Shape, key: tuple[object, ...]) -> int:
        number = self._number_of.setdefault((*key, shape.text), len(self._number_of))
        self.shape_of[number] = shape
        return number

    def fresh(self, shape: Shape, key: tuple[object, ...]) -> Value:
        """Terms of which nothing is known but their names."""
        if shape.is_tuple:
            elements = enumerate(shape.elements)
            return tuple([self.fresh(element, (*key, number)) for number, element in elements])
        return self.term(shape, key)

    def of_integer(self, shape: Shape, number: int) -> int:
        term = self.term(shape, ("integer", number))
        self.integer_of[term] = number
        return term

    def source_of(self, term: int) -> int:
        """The term of the same bytes in the shape that they were made in."""
        return self._source.get(term, term)

    def view(self, shape: Shape, term: int) -> int:
        """The bytes of a term in a shape."""
        source = self._source.get(term, term)
        if self.shape_of[source].text == shape.text:
            return source
        view = self.term(shape, ("bitcast", source))
        self._source[view] = source
        if source in self.integer_of and not shape.dimensions:
            self.integer_of[view] = self.integer_of[source]
        return view

    def look(self, term: int) -> Term:
        """The operation that a term is of, bitcasts left out."""
        term = self._source.get(term, term)
        return self._made.get(term) or Term("", {}, "", (), self.shape_of[term])

    def make(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[int] = (),
        attributes: Mapping[str, str] | None = None,
        payload: str = "",
    ) -> int:
        """The term of an operation."""
        own = attributes or {}
        text = opcode, tuple(sorted(own.items())), payload, "", ()
        term = self.term(shape, (self._number_of_text(text), tuple(operands)))
        self._made[term] = Term(opcode, own, payload, operands, shape)
        return term

    def note_operation(self, term: int, instruction: HloInstruction, operands: list[Value]) -> None:
        """Remember which operation a term is of, where all operands are arrays."""
        if term in self._made:
            return
        plain = [operand for operand in operands if isinstance(operand, int)]
        if len(plain) == len(operands):
            texts = instruction.attributes
            made = Term(instruction.opcode, texts, instruction.payload, plain, instruction.shape)
            self._made[term] = made

    def text_number(self, instruction: HloInstruction) -> int:
        """Equal for operations that the text says the same of, but for shape and operands."""
        bodies = tuple(map(self._classes.of_body, instruction.called_computations))
        return self._number_of_text((*text_of(instruction, by_indices=True), bodies))

    def _number_of_text(self, text: tuple[object, ...]) -> int:
        return self._text_of.setdefault(text, len(self._text_of))


def leaves_of(value: Value) -> list[int]:
    """The terms of all arrays of a value."""
    found: list[int] = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, int):
            found.append(part)
        else:
            pending += reversed(part)
    return found
