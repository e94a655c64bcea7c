"""A program run on terms instead of numbers.

Known integers are computed, so that loops that differ are gone through iteration by iteration;
branches that differ are all gone through.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.checks.arithmetic import constant_of, may_compute, outcome_of
from hlomem.opt.checks.effects import Happened, is_free_of_effects, is_still, touched_by
from hlomem.opt.checks.offsets import SLICES, offset_by_indices, said_offset, says_offset
from hlomem.opt.checks.one_hot import selection_of
from hlomem.opt.checks.stacks import ALIKE, BY_SLICE, Stacks
from hlomem.opt.checks.terms import Terms, leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.opt.checks.edit import Classes
    from hlomem.opt.checks.effects import Key
    from hlomem.opt.checks.terms import Value

MAX_OPERATIONS = 4_000_000
"""Operations on terms, beyond which nothing is said for a program."""
MAX_PASSES = 5000
"""Iterations of one loop, likewise."""
_TOO_LONG = "the loops have too many iterations to check"
_OPAQUE = "kCustom"
"""The kind of fusions whose bodies are not all that counts: emitters know them by their names."""


class Undecided(Exception):  # noqa: N818 - never leaves the checker
    """A program of which nothing can be said."""


class _Said(NamedTuple):
    """The text of an operation, read once for all its runs."""

    number: int
    is_free_of_effects: bool


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


class Execution:
    """Runs of programs that are compared: what is equal is one term in all of them."""

    def __init__(self, opened: set[str], same: Classes) -> None:
        """Goes through loops and branches of these names; others are one operation."""
        self._opened = opened
        self._same = same
        """Bodies that say the same, of loops and what is in them."""
        self._terms = Terms()
        self._stacks = Stacks(self._terms)
        self._bodies: dict[HloComputation, _Body] = {}
        self._fused: dict[tuple[int, tuple[Value, ...]], Value] = {}
        """By class of a fusion's body and operands: its value."""
        self._class_of: dict[HloInstruction, int | None] = {}
        """By fusion that class, where its value is all that comes of it."""
        self._said: dict[HloInstruction, _Said] = {}
        """Read once: a loop's body is gone through again and again."""
        self._operations = 0
        self._happened = Happened({}, Counter())
        self._iterations: list[int] = []
        """Of the loops that are gone through, the outer first."""
        self._branches: list[tuple[Value, int]] = []
        """Of the branches that are gone through what decides, and which; the outer first."""
        self._right: dict[HloInstruction, bool] = {}
        """By slice that says where it begins: whether it always did there."""

    def begins_as_said(self, slice_: HloInstruction) -> bool:
        """Whether a slice was met, and began where it says whenever it was."""
        return self._right.get(slice_, False)

    def run(self, module: HloModule) -> tuple[list[int], Happened]:
        """The terms of a module's results, and what happened."""
        self._happened = Happened({"outside": [], "together": []}, Counter())
        arguments = [
            self._terms.fresh(parameter.shape, ("argument", number))
            for number, parameter in enumerate(module.entry.parameters)
        ]
        return leaves_of(self._evaluate(module.entry, arguments)), self._happened

    def _evaluate(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        body = self._bodies.get(computation)
        if body is None:
            body = self._bodies[computation] = self._body(computation)
        self._operations += body.size
        if self._operations + self._stacks.operations > MAX_OPERATIONS:
            raise Undecided(_TOO_LONG)
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
        if opcode == "async-start" and is_still(instruction):
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
        return None if says or not is_free_of_effects(fusion) else self._same.known_body(body)

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
                self._note_offset(instruction, [self._terms.integer_of.get(one) for one in plain])
            known = self._known(instruction, plain)
            value = self._operation(instruction, operands) if known is None else known
            if opcode in BY_SLICE and isinstance(value, int):
                self._stacks.note_slices(instruction, plain[0], value)
            return value
        return self._operation(instruction, operands)

    def _iterate(self, loop: HloInstruction, operands: list[Value]) -> Value:
        state = operands[0]
        body, condition = loop.called_computations
        for iteration in range(MAX_PASSES):
            goes_on = self._evaluate(condition, [state])
            if not isinstance(goes_on, int) or goes_on not in self._terms.integer_of:
                raise Undecided(f"the trip count of {loop.name} is unknown")
            if not self._terms.integer_of[goes_on]:
                return state
            self._iterations.append(iteration)
            state = self._evaluate(body, [state])
            self._iterations.pop()
        raise Undecided(_TOO_LONG)

    def _choose(self, conditional: HloInstruction, operands: Sequence[Value]) -> Value:
        """The value of a conditional: equal where that of each branch is, and the same decides."""
        decides, *given = operands
        results: list[list[int]] = []
        for number, body in enumerate(conditional.called_computations):
            self._branches.append((decides, number))
            results.append(leaves_of(self._evaluate(body, [given[number]])))
            self._branches.pop()
        chosen = zip(*results, strict=True)
        return self._chosen(conditional.shape, decides, chosen)

    def _chosen(self, shape: Shape, decides: Value, chosen: Iterator[tuple[int, ...]]) -> Value:
        if shape.is_tuple:
            return tuple([self._chosen(one, decides, chosen) for one in shape.elements])
        return self._terms.term(shape, ("chosen", decides, next(chosen)))

    # Slices that say where they begin.

    def _look_for_slices(self, body: HloComputation, operands: Sequence[Value]) -> None:
        """Note where slices begin in a body that is not looked into otherwise."""
        if not any(one.opcode in SLICES and says_offset(one) for one in body.instructions):
            return
        integers = self._terms.integer_of
        values = dict(zip(body.parameters, operands, strict=True))
        for one in body.instructions:
            given = [values.get(operand) for operand in one.operands]
            if one.opcode in SLICES and says_offset(one):
                numbers = [integers.get(at) if isinstance(at, int) else None for at in given]
                self._note_offset(one, numbers)
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
        if opcode in ALIKE:
            return self._stacks.alike(instruction, operands[0])
        if opcode == "convert":
            return self._stacks.convert(shape, operands[0])
        if opcode == "dynamic-slice":
            return self._stacks.read(instruction, operands)
        if opcode == "dynamic-update-slice":
            return self._stacks.write(instruction, operands)
        if opcode == "scatter":
            return selection_of(instruction, operands, self._terms)
        if not may_compute(shape):
            return None
        if opcode == "constant":
            number = constant_of(instruction)
        else:
            number = outcome_of(instruction, list(map(self._terms.integer_of.get, operands)))
        return None if number is None else self._terms.of_integer(shape, number)

    # All others.

    def _operation(self, instruction: HloInstruction, operands: list[Value]) -> Value:
        said = self._said.get(instruction)
        if said is None:
            number = self._terms.text_number(instruction)
            said = _Said(number, is_free_of_effects(instruction))
            self._said[instruction] = said
        key: Key = (said.number, tuple(operands))
        if not said.is_free_of_effects:
            key = (*key, *self._branches)
            touched = touched_by(instruction)
            if touched == "once":
                key = (*key, instruction.name)
                self._happened.once[key] += 1
            else:
                seen = self._happened.in_order[touched]
                key = (*key, instruction.name, len(seen))
                seen.append(key)
        value = self._terms.fresh(instruction.shape, key)
        if isinstance(value, int):
            self._terms.note_operation(value, instruction, operands)
        return value


def _tuple(_: HloInstruction, operands: list[Value]) -> Value:
    return tuple(operands)


def _first(_: HloInstruction, operands: list[Value]) -> Value:
    return operands[0]


def _element(instruction: HloInstruction, operands: list[Value]) -> Value:
    whole = operands[0]
    if not isinstance(whole, tuple) or instruction.tuple_index >= len(whole):
        raise Undecided(f"{instruction.name} reads a result that does not exist")
    return whole[instruction.tuple_index]
