"""A checker of programs whose loops stack other values: both must compute the same terms.

Both are run on terms instead of numbers; equal operations on equal terms are one term. Known
integers are computed, so that loops that differ are gone through iteration by iteration, and a
slice of a stack is found by its index; branches that differ are all gone through. What the world
outside sees must happen to the same terms in the same order, and so must what devices do together;
other calls as often to the same terms.
"""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.hlo.shape import Shape
from hlomem.opt.checks.edit import Classes, check_header, is_pure, text_of
from hlomem.opt.checks.offsets import (
    SLICES,
    new_slices,
    offset_by_indices,
    said_offset,
    says_offset,
    wrong_offset,
)
from hlomem.opt.checks.one_hot import Term, selection_of
from hlomem.opt.checks.order import COLLECTIVE, STRICT, Allowed, has_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode

Value: TypeAlias = "int | tuple[Value, ...]"
"""A term's number, or the values of a tuple's elements."""
MAX_OPERATIONS = 4_000_000
"""Operations on terms, beyond which nothing is said for a program."""
MAX_PASSES = 5000
"""Iterations of one loop, likewise."""
_TOO_LONG = "the loops have too many iterations to check"
_OPAQUE = "kCustom"
"""The kind of fusions whose bodies are not all that counts: emitters know them by their names."""
_EMPTY = '"AllocateBuffer"'
"""The target of custom calls that make room and write nothing to it."""
_RUNNING = ("async-start", "call", "conditional", "while")
_HANDING_ON = ("async-done", "parameter", "tuple")
_ALIKE = frozenset({"bitcast", "copy", "reshape"})
_BY_SLICE = frozenset({"convert", "copy", "transpose"})
"""Opcodes that do to a stack, slices whole in either layout, what they do to each slice."""
_UNKNOWN = 1 << 40
"""Instead of a quotient that is not computed: in no range."""
_RANGES = {
    "pred": range(2),
    "s32": range(-(1 << 31), 1 << 31),
    "s64": range(-(1 << 31), 1 << 31),
    "u32": range(1 << 31),
    "u64": range(1 << 31),
}
"""By type the numbers that are computed with; others might wrap around."""
_ARITHMETIC: Mapping[Opcode, Callable[..., int]] = {
    "add": lambda one, other: one + other,
    "subtract": lambda one, other: one - other,
    "multiply": lambda one, other: one * other,
    "divide": lambda one, other: one // other if one >= 0 < other else _UNKNOWN,
    "negate": lambda only: -only,
    "maximum": max,
    "minimum": min,
    "and": lambda one, other: one & other,
    "or": lambda one, other: one | other,
    "select": lambda which, one, other: one if which else other,
}
_ORDERINGS: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lambda one, other: one < other,
    "LE": lambda one, other: one <= other,
    "GT": lambda one, other: one > other,
    "GE": lambda one, other: one >= other,
    "EQ": lambda one, other: one == other,
    "NE": lambda one, other: one != other,
}
_MAX_INT32 = (1 << 31) - 1


def find_meaning_problems(given: HloModule, edited: HloModule, _: Allowed = STRICT) -> list[str]:
    """Problems of an edited module; one that is too large to be checked has one, too."""
    problems = list(check_header(given, edited))
    if problems:
        return problems
    classes = Classes(of_values=True)
    terms = _Terms(_other_bodies(given, edited, classes), classes)
    try:
        before, after = terms.run(given), terms.run(edited)
    except _Undecided as reason:
        return [str(reason)]
    new = new_slices(given, edited)
    problems += [wrong_offset(one) for one in new if not terms.begins_as_said(one)]
    problems += _compare_effects(before[1], after[1])
    problems += [
        f"result {number} is a different value"
        for number, (one, other) in enumerate(zip(before[0], after[0], strict=True))
        if one != other
    ]
    return problems


def _compare_effects(before: _Happened, after: _Happened) -> Iterator[str]:
    """Effects of the given program that are not the same in the edited one."""
    for was, now in zip(before.in_order.values(), after.in_order.values(), strict=True):
        different = (one for one, other in zip_longest(was, now) if one != other)
        for one in different:
            name = "another call" if one is None else one[-2]
            yield f"side effects do not see the same values in the same order: {name}"
            break
    for one in (before.once - after.once) | (after.once - before.once):
        yield f"{one[-1]} does not run as often, or not on the same values"


class _Undecided(Exception):  # noqa: N818 - never leaves this module
    """A program of which nothing can be said."""


def _other_bodies(given: HloModule, edited: HloModule, classes: Classes) -> set[str]:
    """Names of loops and branches not in both modules, with bodies that say the same."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for module in (given, edited):
        for computation in module.outer_computations:
            for instruction in computation.instructions:
                if instruction.opcode in ("conditional", "while"):
                    bodies = tuple(map(classes.of_body, instruction.called_computations))
                    found.setdefault(instruction.name, []).append(bodies)
    return {name for name, bodies in found.items() if len(bodies) < 2 or len(set(bodies)) > 1}


_Key: TypeAlias = "tuple[object, ...]"
_Touched: TypeAlias = Literal["outside", "together", "once"]


class _Happened(NamedTuple):
    """The effects of a program, by what they touch."""

    in_order: dict[_Touched, list[_Key]]
    """Effects seen outside, and those of devices together; one does not wait for the other."""
    once: Counter[_Key]
    """Calls that nothing is known of but that no effect was declared: as often as given."""


class _Said(NamedTuple):
    """The text of an operation, read once for all its runs."""

    number: int
    is_free_of_effects: bool


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


class _Step(NamedTuple):
    """An instruction of a body, which a loop goes through again and again."""

    run: Callable[[HloInstruction, list[Value]], Value]
    instruction: HloInstruction
    operands: list[int]
    """Their numbers in the body."""


class _Body(NamedTuple):
    size: int
    parameters: list[int]
    """Their numbers."""
    steps: list[tuple[int, _Step]]
    """With the number of each."""
    root: int


class _Terms:
    def __init__(self, opened: set[str], same: Classes) -> None:
        self._opened = opened
        self._same = same
        """Bodies that say the same, of loops and what is in them."""
        self._bodies: dict[HloComputation, _Body] = {}
        self._fused: dict[tuple[int, tuple[Value, ...]], Value] = {}
        """By class of a fusion's body and operands: its value."""
        self._class_of: dict[HloInstruction, int | None] = {}
        """By fusion that class, where its value is all that comes of it."""
        self._classes = Classes(of_values=True, by_indices=True)
        self._number_of: dict[tuple[object, ...], int] = {}
        self._made: dict[int, Term] = {}
        """By term the operation that it is of, for scatters to be looked into."""
        self._integer: dict[int, int] = {}
        self._source: dict[int, int] = {}
        """By term of the same bytes in another shape: whose."""
        self._shape: dict[int, Shape] = {}
        self._stack: dict[int, _Stack] = {}
        """By term what was written to a stack, in no shape of its own."""
        self._written: dict[tuple[_Stack | int, int, int], _Stack] = {}
        """The same by what it was before, place and slice."""
        self._by_slice: dict[int, _BySlice] = {}
        """By term that has the slices of another, each by itself laid out or converted."""
        self._text_of: dict[_Key, int] = {}
        """Numbers of all that the text says of an operation but shape and operands."""
        self._said: dict[HloInstruction, _Said] = {}
        """The same by instruction: a loop's body is gone through again and again."""
        self._left = MAX_OPERATIONS
        self._happened = _Happened({}, Counter())
        self._iterations: list[int] = []
        """Of the loops that are gone through, the outer first."""
        self._branches: list[tuple[Value, int]] = []
        """Of the branches that are gone through what decides, and which; the outer first."""
        self._right: dict[HloInstruction, bool] = {}
        """By slice that says where it begins: whether it always did there."""

    def begins_as_said(self, slice_: HloInstruction) -> bool:
        """Whether a slice was met, and began where it says whenever it was."""
        return self._right.get(slice_, False)

    def run(self, module: HloModule) -> tuple[list[int], _Happened]:
        """The terms of a module's results, and what happened."""
        self._happened = _Happened({"outside": [], "together": []}, Counter())
        arguments = [
            self._fresh(parameter.shape, ("argument", number))
            for number, parameter in enumerate(module.entry.parameters)
        ]
        return _leaves(self._evaluate(module.entry, arguments)), self._happened

    def _fresh(self, shape: Shape, key: tuple[object, ...]) -> Value:
        """Terms of which nothing is known but their names."""
        if shape.is_tuple:
            elements = enumerate(shape.elements)
            return tuple([self._fresh(element, (*key, number)) for number, element in elements])
        return self._term(shape, key)

    def _term(self, shape: Shape, key: tuple[object, ...]) -> int:
        number = self._number_of.setdefault((*key, shape.text), len(self._number_of))
        self._shape[number] = shape
        return number

    def look(self, term: int) -> Term:
        """The operation that a term is of, bitcasts left out."""
        term = self._source.get(term, term)
        return self._made.get(term) or Term("", {}, "", (), self._shape[term])

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
        term = self._term(shape, (self._number_of_text(text), tuple(operands)))
        self._made[term] = Term(opcode, own, payload, operands, shape)
        return term

    def _evaluate(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        body = self._bodies.get(computation)
        if body is None:
            body = self._bodies[computation] = self._body(computation)
        self._left -= body.size
        if self._left < 0:
            raise _Undecided(_TOO_LONG)
        values: list[Value] = [()] * body.size
        for place, argument in zip(body.parameters, arguments, strict=True):
            values[place] = argument
        for place, (run, instruction, operands) in body.steps:
            values[place] = run(instruction, [values[operand] for operand in operands])
        return values[body.root]

    def _body(self, computation: HloComputation) -> _Body:
        place_of = {one: place for place, one in enumerate(computation.instructions)}
        steps = [
            (place, _Step(self._runner(one), one, [place_of[operand] for operand in one.operands]))
            for one, place in place_of.items()
            if one.opcode != "parameter"
        ]
        parameters = [place_of[one] for one in computation.parameters]
        return _Body(len(place_of), parameters, steps, place_of[computation.root])

    def _runner(
        self, instruction: HloInstruction
    ) -> Callable[[HloInstruction, list[Value]], Value]:
        """The function that computes the value of an instruction."""
        opcode, is_opened = instruction.opcode, instruction.name in self._opened
        if opcode == "fusion" and instruction.attributes.get("kind") == _OPAQUE:
            return self._opaque
        if opcode == "async-start" and _is_still(instruction):
            return self._start
        return {
            "tuple": _tuple,
            "get-tuple-element": _element,
            "opt-barrier": _first,
            "fusion": self._fusion,
            "call": self._call,
            "async-done": self._done,
            "while": self._iterate if is_opened else self._operation,
            "conditional": self._choose if is_opened else self._operation,
        }.get(opcode, self._plain)

    def _opaque(self, fusion: HloInstruction, operands: list[Value]) -> Value:
        self._look_for_slices(fusion.called_computations[0], operands)
        return self._plain(fusion, operands)

    def _call(self, call: HloInstruction, operands: list[Value]) -> Value:
        return self._evaluate(call.called_computations[0], operands)

    def _fusion(self, fusion: HloInstruction, operands: list[Value]) -> Value:
        """The value of a fusion; the same body on the same values, in either module, once."""
        if fusion not in self._class_of:
            self._class_of[fusion] = self._class_of_fusion(fusion)
        number = self._class_of[fusion]
        if number is None:
            return self._call(fusion, operands)
        key = number, tuple(operands)
        known = self._fused.get(key)
        if known is None:
            known = self._fused[key] = self._call(fusion, operands)
        return known

    def _class_of_fusion(self, fusion: HloInstruction) -> int | None:
        [body] = fusion.called_computations
        says = any(one.opcode in SLICES and says_offset(one) for one in body.instructions)
        return None if says or not _is_free_of_effects(fusion) else self._same.known_body(body)

    def _start(self, start: HloInstruction, operands: list[Value]) -> Value:
        return tuple(operands), self._call(start, operands)

    def _done(self, done: HloInstruction, operands: list[Value]) -> Value:
        started = operands[0]
        return started[1] if isinstance(started, tuple) else self._plain(done, operands)

    def _plain(self, instruction: HloInstruction, operands: list[Value]) -> Value:
        opcode = instruction.opcode
        plain = [operand for operand in operands if isinstance(operand, int)]
        if len(plain) == len(operands) and not instruction.shape.is_tuple:
            if opcode in SLICES and says_offset(instruction):
                self._note_offset(instruction, [self._integer.get(one) for one in plain])
            known = self._known(instruction, plain)
            value = self._operation(instruction, operands) if known is None else known
            if opcode in _BY_SLICE and isinstance(value, int):
                self._note_slices(instruction, plain[0], value)
            return value
        return self._operation(instruction, operands)

    def _iterate(self, loop: HloInstruction, operands: list[Value]) -> Value:
        state = operands[0]
        body, condition = loop.called_computations
        for iteration in range(MAX_PASSES):
            goes_on = self._evaluate(condition, [state])
            if not isinstance(goes_on, int) or goes_on not in self._integer:
                raise _Undecided(f"the trip count of {loop.name} is unknown")
            if not self._integer[goes_on]:
                return state
            self._iterations.append(iteration)
            state = self._evaluate(body, [state])
            self._iterations.pop()
        raise _Undecided(_TOO_LONG)

    def _choose(self, conditional: HloInstruction, operands: Sequence[Value]) -> Value:
        """The value of a conditional: equal where that of each branch is, and the same decides."""
        decides, *given = operands
        results: list[list[int]] = []
        for number, body in enumerate(conditional.called_computations):
            self._branches.append((decides, number))
            results.append(_leaves(self._evaluate(body, [given[number]])))
            self._branches.pop()
        chosen = zip(*results, strict=True)
        return self._chosen(conditional.shape, decides, chosen)

    def _chosen(self, shape: Shape, decides: Value, chosen: Iterator[tuple[int, ...]]) -> Value:
        if shape.is_tuple:
            return tuple([self._chosen(one, decides, chosen) for one in shape.elements])
        return self._term(shape, ("chosen", decides, next(chosen)))

    # Slices that say where they begin.

    def _look_for_slices(self, body: HloComputation, operands: Sequence[Value]) -> None:
        """Note where slices begin in a body that is not looked into otherwise."""
        if not any(one.opcode in SLICES and says_offset(one) for one in body.instructions):
            return
        values = dict(zip(body.parameters, operands, strict=True))
        for one in body.instructions:
            given = [values.get(operand) for operand in one.operands]
            if one.opcode in SLICES and says_offset(one):
                self._note_offset(
                    one, [self._integer.get(at) if isinstance(at, int) else None for at in given]
                )
            known = [at for at in given if isinstance(at, int)]
            if one.opcode != "parameter" and not one.shape.dimensions and len(known) == len(given):
                value = self._known(one, known) if one.shape.is_array else None
                if value is not None:
                    values[one] = value

    def _note_offset(self, slice_: HloInstruction, numbers: Sequence[int | None]) -> None:
        """Remember whether a slice begins where it says; of its operands the integers are known."""
        is_write = slice_.opcode == "dynamic-update-slice"
        part = slice_.operands[1].shape if is_write else slice_.shape
        starts = numbers[1 + is_write :]
        begins = offset_by_indices(slice_.operands[0].shape, part, starts)
        said = said_offset(slice_, self._iterations)
        is_right = said is not None and said == begins
        self._right[slice_] = self._right.get(slice_, True) and is_right

    # Operations whose outcome is known.

    def _known(self, instruction: HloInstruction, operands: list[int]) -> int | None:
        opcode, shape = instruction.opcode, instruction.shape
        if opcode in _ALIKE:
            return self._alike(instruction, operands[0])
        if opcode == "convert":
            return self._convert(shape, operands[0])
        if opcode == "dynamic-slice":
            return self._read(instruction, operands)
        if opcode == "dynamic-update-slice":
            return self._write(instruction, operands)
        if opcode == "scatter":
            return selection_of(instruction, operands, self)
        if shape.dimensions or shape.element_type.text not in _RANGES:
            return None
        if opcode == "constant":
            return self._constant(instruction)
        numbers = [self._integer.get(operand) for operand in operands]
        if None in numbers:
            return None
        operation = _ARITHMETIC.get(opcode)
        if opcode == "compare":
            operation = _ORDERINGS.get(instruction.attributes.get("direction", ""))
        if operation is None:
            return None
        number = int(operation(*numbers))
        is_sure = number in _RANGES[shape.element_type.text]
        return self._of_integer(shape, number) if is_sure else None

    def _constant(self, instruction: HloInstruction) -> int | None:
        text = instruction.payload.strip()
        if text in ("true", "false"):
            return self._of_integer(instruction.shape, int(text == "true"))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < len(str(_MAX_INT32)):
            return self._of_integer(instruction.shape, int(text))
        return None

    def _of_integer(self, shape: Shape, number: int) -> int:
        term = self._term(shape, ("integer", number))
        self._integer[term] = number
        return term

    def _alike(self, instruction: HloInstruction, operand: int) -> int | None:
        """The same bytes in another shape are the same value in that shape."""
        shape = instruction.shape
        if self._shape[operand].text == shape.text:
            return operand
        if instruction.opcode != "bitcast":  # what others do to bytes, the layouts say
            return None
        if operand in self._stack:
            same = _have_same_slices(shape, self._shape[operand])
            return self._stacked(shape, self._stack[operand]) if same else None
        return self.view(shape, operand)

    def view(self, shape: Shape, operand: int) -> int:
        """The bytes of a term in a shape."""
        source = self._source.get(operand, operand)
        if self._shape[source].text == shape.text:
            return source
        term = self._term(shape, ("bitcast", source))
        self._source[term] = source
        if source in self._integer and not shape.dimensions:
            self._integer[term] = self._integer[source]
        return term

    def _read(self, instruction: HloInstruction, operands: list[int]) -> int | None:
        whole, part = instruction.operands[0].shape, instruction.shape
        if part.element_type is whole.element_type:
            return self._slice(whole, part, operands)
        # TPUs convert what they read.
        found = self._slice(
            whole, Shape(whole.element_type, part.dimensions, (), whole.layout), operands
        )
        return None if found is None else self._convert(part, found)

    def _slice(self, whole: Shape, part: Shape, operands: list[int]) -> int | None:
        if self._shape[operands[0]].text == part.text:  # all of it, wherever it begins
            return operands[0]
        place = self._place(whole, part, operands[1:])
        if place is None or not _is_laid_out_as(part, whole):
            return None
        done: list[HloInstruction] = []
        term, shape = operands[0], whole
        while term not in self._stack:
            found = self._by_slice.get(self._source.get(term, term))
            if found is None or not _have_same_slices(found.instruction.shape, shape):
                break
            done.append(found.instruction)
            term, shape = found.operand, self._shape[found.operand]
        self._left -= len(done)
        value = self._slice_at(term, shape, place)
        if value is None:
            return None
        for instruction in reversed(done):
            value = self._done_to_slice(instruction, value)
        return self.view(part, value)

    def _slice_at(self, term: int, whole: Shape, place: int) -> int | None:
        """The slice of an array, in whichever shape it is known."""
        stack = self._stack.get(term)
        found = None if stack is None else stack.at(place)
        if found is not None:
            return found
        base = self._source.get(term, term) if stack is None else stack.base
        shape = self._shape[base]
        if shape.text != whole.text and not _have_same_slices(shape, whole):
            return None
        return self._term(_one_slice(shape), ("slice", base, place))

    def _note_slices(self, instruction: HloInstruction, operand: int, made: int) -> None:
        """Remember a term whose slices are those of another, each by itself changed."""
        is_other = made != operand and made not in self._stack
        if not is_other or not _have_same_slices(instruction.shape, self._shape[operand]):
            return
        if instruction.opcode == "transpose" and instruction.integers("dimensions")[:1] != (0,):
            return
        self._by_slice.setdefault(self._source.get(made, made), _BySlice(operand, instruction))

    def _done_to_slice(self, instruction: HloInstruction, slice_: int) -> int:
        """One slice as an instruction lays out or converts it."""
        shape = _one_slice(instruction.shape)
        given = self.view(_one_slice(instruction.operands[0].shape), slice_)
        if instruction.opcode == "convert":
            converted = self._convert(shape, given)
            if converted is not None:
                return converted
        if self._shape[given].text == shape.text:
            return given
        return self._term(shape, (self._read_text(instruction).number, (given,)))

    def _write(self, instruction: HloInstruction, operands: list[int]) -> int | None:
        whole, part = instruction.shape, instruction.operands[1].shape
        if self._shape[operands[1]].text == whole.text:
            return operands[1]
        place = self._place(whole, part, operands[2:])
        if place is None:
            return None
        update: int | None = operands[1]
        if part.element_type is not whole.element_type:  # TPUs convert what they write
            slice_shape = Shape(whole.element_type, part.dimensions, (), whole.layout)
            update = self._convert(slice_shape, operands[1])
        if update is None:
            return None
        base = self._source.get(operands[0], operands[0])
        before: _Stack | int = self._stack.get(operands[0], base)
        key = before, place, self._source.get(update, update)
        if key not in self._written:
            stack = _Stack(base, {}, 0) if isinstance(before, int) else before
            self._left -= stack.cost(place)
            self._written[key] = stack.written(place, key[2])
        return self._stacked(whole, self._written[key])

    def _stacked(self, shape: Shape, stack: _Stack) -> int:
        term = self._term(shape, ("stack", stack))
        self._stack[term] = stack
        return term

    def _convert(self, shape: Shape, operand: int) -> int | None:
        """Elements of another type, in whichever shape they are converted."""
        given = self._shape[operand]
        if not _have_same_order(shape, given) or operand in self._stack:
            return None
        source = self._source.get(operand, operand)
        plain = Shape(shape.element_type, self._shape[source].dimensions, (), None)
        tiles = None if shape.layout is None else shape.layout.tiles
        return self.view(shape, self._term(plain, ("converted", source, tiles)))

    def _place(self, whole: Shape, part: Shape, starts: Sequence[int]) -> int | None:
        """The index of a slice in its stack; None where it is no whole slice, or not known."""
        if not whole.dimensions or part.dimensions != (1, *whole.dimensions[1:]):
            return None
        first, *others = [self._integer.get(start) for start in starts]
        if first is None or any(other != 0 for other in others):
            return None
        return min(max(first, 0), whole.dimensions[0] - 1)

    # All others.

    def _operation(self, instruction: HloInstruction, operands: list[Value]) -> Value:
        said = self._said.get(instruction)
        if said is None:
            said = self._said[instruction] = self._read_text(instruction)
        key: _Key = (said.number, tuple(operands))
        if not said.is_free_of_effects:
            key = (*key, *self._branches)
            touched = _touched_by(instruction)
            if touched == "once":
                key = (*key, instruction.name)
                self._happened.once[key] += 1
            else:
                seen = self._happened.in_order[touched]
                key = (*key, instruction.name, len(seen))
                seen.append(key)
        term = self._fresh(instruction.shape, key)
        if not isinstance(term, int) or term in self._made:
            return term
        plain = [operand for operand in operands if isinstance(operand, int)]
        if len(plain) == len(operands):
            texts = instruction.attributes
            made = Term(instruction.opcode, texts, instruction.payload, plain, instruction.shape)
            self._made[term] = made
        return term

    def _read_text(self, instruction: HloInstruction) -> _Said:
        bodies = tuple(map(self._classes.of_body, instruction.called_computations))
        text = text_of(instruction, by_indices=True)
        number = self._number_of_text((*text, bodies))
        return _Said(number, _is_free_of_effects(instruction))

    def _number_of_text(self, text: _Key) -> int:
        return self._text_of.setdefault(text, len(self._text_of))


def _tuple(_: HloInstruction, operands: list[Value]) -> Value:
    return tuple(operands)


def _first(_: HloInstruction, operands: list[Value]) -> Value:
    return operands[0]


def _element(instruction: HloInstruction, operands: list[Value]) -> Value:
    whole = operands[0]
    if not isinstance(whole, tuple) or instruction.tuple_index >= len(whole):
        raise _Undecided(f"{instruction.name} reads a result that does not exist")
    return whole[instruction.tuple_index]


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


def _is_free_of_effects(instruction: HloInstruction) -> bool:
    """Whether nothing happens but that a value is computed, or room is made for one."""
    if instruction.opcode == "custom-call" and not instruction.operands:
        return instruction.attributes.get("custom_call_target") == _EMPTY
    return is_pure(instruction, may_wait=True) or _is_still(instruction)


def _touched_by(instruction: HloInstruction) -> _Touched:
    """The kind of an instruction's effects, or that nothing is known of them."""
    if has_effect(instruction, frozenset()):
        return "outside"
    return "together" if has_effect(instruction, COLLECTIVE) else "once"


def _is_still(instruction: HloInstruction) -> bool:
    """Whether a loop, branch or call does nothing but compute."""
    if instruction.opcode not in _RUNNING:
        return False
    pending = list(instruction.called_computations)
    seen: set[HloComputation] = set()
    while pending:
        computation = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        for inside in computation.instructions:
            if inside.opcode in _RUNNING:
                pending += inside.called_computations
            elif inside.opcode not in _HANDING_ON and not is_pure(inside, may_wait=True):
                return False
    return True


def _leaves(value: Value) -> list[int]:
    found: list[int] = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, int):
            found.append(part)
        else:
            pending += reversed(part)
    return found
