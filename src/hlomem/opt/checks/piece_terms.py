"""The values of a computation as terms: equal operations on equal terms are one term.

Fusions are gone through; what runs other computations, or may not run twice, is known by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.opt.checks.edit import Classes, is_pure, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape

Value: TypeAlias = "int | tuple[Value, ...]"
"""A term's number, or the values of a tuple's elements."""
_ALIKE = frozenset({"bitcast", "broadcast", "copy", "reshape", "transpose"})
"""Opcodes that leave an array of equal elements one of the same."""


class Term(NamedTuple):
    shape: Shape
    instruction: HloInstruction | None
    """One that makes it; None for parameters and elements of tuples."""
    operands: tuple[Value, ...] = ()
    of: int | None = None
    """The term that it is a wider form of."""


class Terms:
    def __init__(self) -> None:
        self.terms: list[Term] = []
        self._classes = Classes(of_values=True)
        self._number_of: dict[tuple[object, ...], int] = {}
        self._made_of: dict[tuple[object, ...], list[tuple[int, Value]]] = {}

    def parameter(self, shape: Shape, key: tuple[object, ...]) -> Value:
        """A value of which nothing is known but its name."""
        if shape.is_tuple:
            parts = enumerate(shape.elements)
            return tuple([self.parameter(part, (*key, number)) for number, part in parts])
        return self._term((*key, shape.text), Term(shape, None))

    def _term(self, key: tuple[object, ...], term: Term) -> int:
        number = self._number_of.setdefault(key, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
        return number

    def wide(self, term: int, shape: Shape) -> int:
        """The sum that a term is, before it is rounded to its type."""
        return self._term(("wide", term, shape.text), Term(shape, None, (), term))

    def run(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        values = dict(zip(computation.parameters, arguments, strict=True))
        for one in computation.instructions:
            if one.opcode != "parameter":
                values[one] = self.of(one, [values[operand] for operand in one.operands])
        return values[computation.root]

    def of(self, one: HloInstruction, operands: list[Value]) -> Value:
        """The value of an instruction on the values of its operands."""
        if one.opcode == "tuple":
            return tuple(operands)
        if one.opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][one.tuple_index]
        if one.opcode == "fusion":
            return self.run(one.called_computations[0], operands)
        if one.opcode == "convert" and isinstance(operands[0], int):
            narrow = self.terms[operands[0]].of
            if narrow is not None and self.terms[narrow].shape.text == one.shape.text:
                return narrow
        return self.operation(one, operands)

    def operation(self, one: HloInstruction, operands: Sequence[Value]) -> Value:
        """The value of an instruction that is taken as it is."""
        outer = [callee for callee in one.called_computations if not is_inner(one)]
        is_own = bool(outer) or not (is_pure(one, may_wait=True) or one.parent.is_fused)
        inner = [] if outer else map(self._classes.of_body, one.called_computations)
        key = (
            *text_of(one),
            one.name if is_own else "",
            one.shape.text,
            tuple(operands),
            tuple(callee.name for callee in outer),
            tuple(inner),
        )
        if not one.shape.is_tuple:
            value: Value = self._term(key, Term(one.shape, one, tuple(operands)))
        else:
            value = self.parameter(one.shape, key)
        known = self._made_of.setdefault((one.opcode, tuple(operands)), [])
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, int) and all(number != first for number, _ in known):
            known.append((first, value))
            if one.shape.is_tuple:
                self.terms[first] = Term(one.shape.elements[0], one, tuple(operands))
        return value

    def made_of(self, opcode: str, operands: tuple[Value, ...]) -> list[tuple[int, Value]]:
        """The first array, and all, of what an opcode makes of these in the program."""
        return self._made_of.get((opcode, operands), [])

    def number_in(self, value: Value) -> str | None:
        """The number that all elements of a value are, as it is written; None if not known."""
        while isinstance(value, int):
            made = self.terms[value].instruction
            if made is None:
                return None
            if made.opcode == "constant":
                return None if made.shape.dimensions else made.payload.strip()
            if made.opcode not in _ALIKE:
                return None
            [value] = self.terms[value].operands
        return None

    def bodies(self, one: HloInstruction) -> tuple[int, ...]:
        """The classes of the computations that an instruction applies."""
        return tuple(map(self._classes.of_body, one.called_computations))


_APPLYING = frozenset(
    {"reduce", "reduce-window", "map", "scatter", "select-and-scatter", "sort", "custom-call"}
)


def is_inner(one: HloInstruction) -> bool:
    """Whether what an instruction calls is applied to elements, and runs nothing of its own."""
    return one.opcode in _APPLYING
