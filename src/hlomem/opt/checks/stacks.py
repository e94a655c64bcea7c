"""Stacks of a loop's values: what is written to one, and read of it, slice by slice.

A slice is found by its index, also where the stack has been converted or laid out again as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.opt.checks.terms import Terms

ALIKE = frozenset({"bitcast", "copy", "reshape"})
"""Opcodes of which the result may be the operand, or its bytes in another shape."""
BY_SLICE = frozenset({"convert", "copy", "transpose"})
"""Opcodes that do to a stack, slices whole in either layout, what they do to each slice."""


class _Stack:
    """A stack as it is after some writes; those that follow one another share what was written."""

    def __init__(self, base: int, slices: dict[int, tuple[int, int]], count: int) -> None:
        self.base = base
        """The stack before the first write."""
        self._slices = slices
        """By place: the number of the write, and the slice."""
        self._count = count
        """The writes that are this stack's; later ones are those of others."""

    def at(self, place: int) -> int | None:
        """The slice at a place; None where nothing was written."""
        number, found = self._slices.get(place, (self._count, 0))
        return found if number < self._count else None

    def cost(self, place: int) -> int:
        """Operations to write another slice, beyond the first."""
        return 0 if self._may_share(place) else len(self._slices) // 16

    def written(self, place: int, part: int) -> _Stack:
        """The stack after one more write."""
        slices = self._slices
        if not self._may_share(place):
            others = [one for one in slices if one != place and self.at(one) is not None]
            slices = {one: (number, slices[one][1]) for number, one in enumerate(others)}
        slices[place] = len(slices), part
        return _Stack(self.base, slices, len(slices))

    def _may_share(self, place: int) -> bool:
        return self._count == len(self._slices) and place not in self._slices


class _BySlice(NamedTuple):
    """An operation on each slice of a term."""

    operand: int
    instruction: HloInstruction


class Stacks:
    """The terms that are stacks, or slices of stacks."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._stack: dict[int, _Stack] = {}
        """By term what was written to a stack, in no shape of its own."""
        self._written: dict[tuple[_Stack | int, int, int], _Stack] = {}
        """The same by what it was before, place and slice."""
        self._by_slice: dict[int, _BySlice] = {}
        """By term that has the slices of another, each by itself laid out or converted."""
        self.operations = 0
        """Operations beyond one for each instruction, so far."""

    def read(self, instruction: HloInstruction, operands: list[int]) -> int | None:
        whole, part = instruction.operands[0].shape, instruction.shape
        if part.element_type is whole.element_type:
            return self._slice(whole, part, operands)
        # TPUs convert what they read.
        found = self._slice(
            whole, Shape(whole.element_type, part.dimensions, (), whole.layout), operands
        )
        return None if found is None else self.convert(part, found)

    def write(self, instruction: HloInstruction, operands: list[int]) -> int | None:
        whole, part = instruction.shape, instruction.operands[1].shape
        if self._terms.shape_of[operands[1]].text == whole.text:
            return operands[1]
        place = self._place(whole, part, operands[2:])
        if place is None:
            return None
        update: int | None = operands[1]
        if part.element_type is not whole.element_type:  # TPUs convert what they write
            slice_shape = Shape(whole.element_type, part.dimensions, (), whole.layout)
            update = self.convert(slice_shape, operands[1])
        if update is None:
            return None
        base = self._terms.source_of(operands[0])
        before: _Stack | int = self._stack.get(operands[0], base)
        key = before, place, self._terms.source_of(update)
        if key not in self._written:
            stack = _Stack(base, {}, 0) if isinstance(before, int) else before
            self.operations += stack.cost(place)
            self._written[key] = stack.written(place, key[2])
        return self._stacked(whole, self._written[key])

    def alike(self, instruction: HloInstruction, operand: int) -> int | None:
        """The same bytes in another shape are the same value in that shape."""
        shape = instruction.shape
        if self._terms.shape_of[operand].text == shape.text:
            return operand
        if instruction.opcode != "bitcast":  # what others do to bytes, the layouts say
            return None
        if operand in self._stack:
            same = _have_same_slices(shape, self._terms.shape_of[operand])
            return self._stacked(shape, self._stack[operand]) if same else None
        return self._terms.view(shape, operand)

    def convert(self, shape: Shape, operand: int) -> int | None:
        """Elements of another type, in whichever shape they are converted."""
        given = self._terms.shape_of[operand]
        if not _have_same_order(shape, given) or operand in self._stack:
            return None
        source = self._terms.source_of(operand)
        plain = Shape(shape.element_type, self._terms.shape_of[source].dimensions, (), None)
        tiles = None if shape.layout is None else shape.layout.tiles
        return self._terms.view(shape, self._terms.term(plain, ("converted", source, tiles)))

    def note_slices(self, instruction: HloInstruction, operand: int, made: int) -> None:
        """Remember a term whose slices are those of another, each by itself changed."""
        is_other = made != operand and made not in self._stack
        if not is_other or not _have_same_slices(instruction.shape, self._terms.shape_of[operand]):
            return
        if instruction.opcode == "transpose" and instruction.integers("dimensions")[:1] != (0,):
            return
        self._by_slice.setdefault(self._terms.source_of(made), _BySlice(operand, instruction))

    def _slice(self, whole: Shape, part: Shape, operands: list[int]) -> int | None:
        if self._terms.shape_of[operands[0]].text == part.text:  # all of it, wherever it begins
            return operands[0]
        place = self._place(whole, part, operands[1:])
        if place is None or not _is_laid_out_as(part, whole):
            return None
        done: list[HloInstruction] = []
        term, shape = operands[0], whole
        while term not in self._stack:
            found = self._by_slice.get(self._terms.source_of(term))
            if found is None or not _have_same_slices(found.instruction.shape, shape):
                break
            done.append(found.instruction)
            term, shape = found.operand, self._terms.shape_of[found.operand]
        self.operations += len(done)
        value = self._slice_at(term, shape, place)
        if value is None:
            return None
        for instruction in reversed(done):
            value = self._done_to_slice(instruction, value)
        return self._terms.view(part, value)

    def _slice_at(self, term: int, whole: Shape, place: int) -> int | None:
        """The slice of an array, in whichever shape it is known."""
        stack = self._stack.get(term)
        found = None if stack is None else stack.at(place)
        if found is not None:
            return found
        base = self._terms.source_of(term) if stack is None else stack.base
        shape = self._terms.shape_of[base]
        if shape.text != whole.text and not _have_same_slices(shape, whole):
            return None
        return self._terms.term(_one_slice(shape), ("slice", base, place))

    def _done_to_slice(self, instruction: HloInstruction, slice_: int) -> int:
        """One slice as an instruction lays out or converts it."""
        shape = _one_slice(instruction.shape)
        given = self._terms.view(_one_slice(instruction.operands[0].shape), slice_)
        if instruction.opcode == "convert":
            converted = self.convert(shape, given)
            if converted is not None:
                return converted
        if self._terms.shape_of[given].text == shape.text:
            return given
        return self._terms.term(shape, (self._terms.text_number(instruction), (given,)))

    def _stacked(self, shape: Shape, stack: _Stack) -> int:
        term = self._terms.term(shape, ("stack", stack))
        self._stack[term] = stack
        return term

    def _place(self, whole: Shape, part: Shape, starts: Sequence[int]) -> int | None:
        """The index of a slice in its stack; None where it is no whole slice, or not known."""
        if not whole.dimensions or part.dimensions != (1, *whole.dimensions[1:]):
            return None
        first, *others = [self._terms.integer_of.get(start) for start in starts]
        if first is None or any(other != 0 for other in others):
            return None
        return min(max(first, 0), whole.dimensions[0] - 1)


def _have_same_order(one: Shape, other: Shape) -> bool:
    """Whether the elements of two arrays lie in the same order, tiles of each type's own aside."""
    if one.layout is None or other.layout is None or any((*one.dynamic, *other.dynamic)):
        return False
    same = one.layout.minor_to_major == other.layout.minor_to_major
    tiled = [shape.layout.tiles[:1] for shape in (one, other) if shape.layout is not None]
    return same and one.dimensions == other.dimensions and tiled[0] == tiled[1]


def _have_same_slices(one: Shape, other: Shape) -> bool:
    """Whether slices lie whole and one after another in two shapes of the same bytes."""
    if not one.dimensions or one.dimensions[:1] != other.dimensions[:1]:
        return False
    for shape in (one, other):
        if shape.layout is None or any(shape.dynamic) or shape.layout.minor_to_major[-1] != 0:
            return False
        if any(len(tile) >= len(shape.dimensions) for tile in shape.layout.tiles):
            return False
    return True


def _is_laid_out_as(one: Shape, other: Shape) -> bool:
    """Whether two layouts name the dimensions in the same order, as far as they are known."""
    orders = [shape.layout.minor_to_major for shape in (one, other) if shape.layout is not None]
    return len(set(orders)) < 2


def _one_slice(shape: Shape) -> Shape:
    return Shape(shape.element_type, (1, *shape.dimensions[1:]), (), shape.layout)
