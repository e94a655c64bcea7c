"""A checker of programs that compute a region in pieces, in a loop of its own.

All but new loops must be as given. Of a new loop the number of passes is counted, and of every
value in its body it is worked out what it is in the i-th pass: the i-th part, along a dimension, of
a value of the given program; all of one; or a share of one. A result is right if each pass writes
its part where that belongs, or adds its share, beginning with what changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.checks.edit import Classes, check_header, text_of
from hlomem.opt.checks.offsets import find_offset_problems
from hlomem.opt.checks.order import (
    COLLECTIVE,
    STRICT,
    Allowed,
    find_effect_problems,
    has_effect,
)
from hlomem.opt.checks.piece_claims import Claim, Claims, Part, Prover, Rest
from hlomem.opt.checks.piece_rules import identity_of
from hlomem.opt.checks.piece_terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.opt.checks.piece_terms import Value

MAX_PASSES = 4096
"""Passes of a loop, beyond which nothing is said for a program."""


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    """A loop that is not shown to be right."""


def find_piece_problems(
    given: HloModule, edited: HloModule, allowed: Allowed = STRICT
) -> list[str]:
    """Problems of a module with regions in pieces; what cannot be shown is one."""
    problems = list(check_header(given, edited)) or _Comparison(given, edited).run()
    problems = problems or find_offset_problems(given, edited)
    # What a loop hides of a transfer is a matter of time, which has its price.
    allowed = allowed._replace(may_lose_overlap=True)
    return problems or find_effect_problems(given, edited, allowed)


class _Comparison:
    def __init__(self, given: HloModule, edited: HloModule) -> None:
        self._given = given
        self._edited = edited
        self._classes = Classes()

    def run(self) -> list[str]:
        now = {one.name: one for one in self._edited.outer_computations}
        problems: list[str] = []
        known: set[str] = set()
        for computation in self._given.outer_computations:
            known.add(computation.name)
            other = now.get(computation.name)
            if other is None:
                problems.append(f"{computation.name} is missing")
                continue
            loops = _new_loops(computation, other)
            known |= {callee.name for loop in loops for callee in loop.called_computations}
            if len(loops) == 1:
                found = _compare(computation, other, loops[0])
                problems += found or _check_waiting(computation, other, loops[0])
            elif not self._is_same(computation, other):
                problems.append(f"{computation.name} is another")
        return problems + [f"{name} is new" for name in now if name not in known]

    def _is_same(self, one: HloComputation, other: HloComputation) -> bool:
        """Whether two computations have the same instructions, in whatever order they stand."""
        if len(one.instructions) != len(other.instructions) or one.root.name != other.root.name:
            return False
        by_name = {made.name: made for made in other.instructions}
        return all(
            made.name in by_name and self._said(made) == self._said(by_name[made.name])
            for made in one.instructions
        )

    def _said(self, made: HloInstruction) -> tuple[object, ...]:
        return (
            made.shape.text,
            *text_of(made),
            [operand.name for operand in made.operands],
            [earlier.name for earlier in made.control_predecessors],
            [
                self._classes.of_body(callee) if callee.is_fused else callee.name
                for callee in made.called_computations
            ],
        )


def _new_loops(old: HloComputation, new: HloComputation) -> list[HloInstruction]:
    known = {one.name for one in old.instructions}
    return [one for one in new.instructions if one.opcode == "while" and one.name not in known]


def _check_waiting(old: HloComputation, new: HloComputation, loop: HloInstruction) -> list[str]:
    """Instructions that waited for what is in the loop wait for it, and it for what those did."""
    now = {one.name: one for one in new.instructions}
    problems: list[str] = []
    for one in old.instructions:
        waiting = now.get(one.name, loop)
        known = {earlier.name for earlier in waiting.control_predecessors}
        for earlier in one.control_predecessors:
            name = earlier.name if earlier.name in now else loop.name
            if name not in known and waiting.name != name:
                problems.append(f"{waiting.name} does not wait for {name}")
    return problems


def _compare(old: HloComputation, new: HloComputation, loop: HloInstruction) -> list[str]:
    """Problems of a computation with a new loop: all that it returns must be as it was."""
    terms = Terms()
    shapes = [one.shape.text for one in old.parameters]
    if shapes != [one.shape.text for one in new.parameters]:
        return [f"{new.name} takes other values"]
    arguments = [terms.parameter(one.shape, (one.parameter_number,)) for one in old.parameters]
    was = _run(old, arguments, terms)
    try:
        now = _run(new, arguments, terms, loop)
    except _Wrong as reason:
        return [str(reason)]
    if was[old.root] != now[new.root]:
        return [f"{new.name} returns something else"]
    return [
        f"{name} does not compute what it did"
        for name, value in _lasting(was).items()
        if _lasting(now).get(name) != value
    ]


def _lasting(values: Mapping[HloInstruction, Value]) -> dict[str, Value]:
    """By name what is seen outside of the program."""
    return {one.name: value for one, value in values.items() if has_effect(one, COLLECTIVE)}


def _run(
    computation: HloComputation,
    arguments: list[Value],
    terms: Terms,
    loop: HloInstruction | None = None,
) -> dict[HloInstruction, Value]:
    values = dict(zip(computation.parameters, arguments, strict=True))
    for one in computation.instructions:
        if one.opcode == "parameter":
            continue
        operands = [values[operand] for operand in one.operands]
        values[one] = (
            _Loop(one, operands[0], terms).run() if one is loop else terms.of(one, operands)
        )
    return values


class _Loop:
    """A new loop, and what is in its state."""

    def __init__(self, loop: HloInstruction, initial: Value, terms: Terms) -> None:
        self._loop = loop
        self._body, self._condition = loop.called_computations
        if not isinstance(initial, tuple) or len(self._body.parameters) != 1:
            raise _Wrong(f"{loop.name} has no state of several elements")
        self._initial = initial
        self._terms = terms
        self._kept = self._find_kept()

    def run(self) -> Value:
        """The state after the last pass, as values of the given program."""
        prover = Prover(self._terms, self._count_passes())
        elements = tuple([self._element(number) for number in range(len(self._initial))])
        returned = prover.run(self._body, [elements])
        if not isinstance(returned, tuple):
            raise _Wrong(f"{self._loop.name} returns no tuple")
        return tuple([self._after(number, claims) for number, claims in enumerate(returned)])

    def _find_kept(self) -> set[int]:
        """The elements that the body hands on as they are."""
        root, parameter = self._body.root, self._body.parameters[0]
        if root.opcode != "tuple" or len(root.operands) != len(self._initial):
            raise _Wrong(f"{self._loop.name} returns no tuple of its elements")
        return {
            number
            for number, one in enumerate(root.operands)
            if one.opcode == "get-tuple-element"
            and one.operands[0] is parameter
            and one.tuple_index == number
        }

    def _element(self, number: int) -> Claims:
        first = self._initial[number]
        if number in self._kept:
            return frozenset({Part(first)}) if isinstance(first, int) else frozenset()
        if self._is_counter(number):
            return frozenset({Claim("count", (1, 0))})
        return frozenset({Claim("state", (number,))})

    def _is_counter(self, number: int) -> bool:
        """Whether an element is an integer that begins with 0; that it counts is seen later."""
        shape = self._loop.shape.elements[number]
        is_integer = shape.is_array and not shape.dimensions and shape.element_type.text == "s32"
        return is_integer and self._terms.number_in(self._initial[number]) == "0"

    def _count_passes(self) -> int:
        """How often the body runs, its counters being those of the pass."""
        prover = Prover(self._terms, 0)
        for passes in range(MAX_PASSES):
            elements = tuple(
                [
                    frozenset({Claim("count", (0, passes))}) if self._is_counter(number) else Rest
                    for number in range(len(self._initial))
                ]
            )
            flag = prover.run(self._condition, [elements])
            if not isinstance(flag, frozenset) or Claim("flag", (True,)) not in flag:
                is_known = isinstance(flag, frozenset) and Claim("flag", (False,)) in flag
                if is_known and passes > 1 and self._is_told(passes):
                    return passes
                break
        raise _Wrong(f"the number of passes of {self._loop.name} is not known")

    def _is_told(self, passes: int) -> bool:
        """Whether the loop says nothing else of the number of its passes, which XLA may go by."""
        config = self._loop.backend_config
        known = config.get("known_trip_count") if isinstance(config, dict) else None
        return known is None or (isinstance(known, dict) and known.get("n") == str(passes))

    def _after(self, number: int, claims: object) -> Value:
        """An element after the last pass; a counter is nothing that anyone may read."""
        first, shape = self._initial[number], self._loop.shape.elements[number]
        if number in self._kept:
            return first
        found = claims if isinstance(claims, frozenset) else Rest
        if self._is_counter(number) and Claim("count", (1, 1)) in found:
            return self._terms.parameter(shape, ("counter of", self._loop.name))
        for claim in sorted(found, key=repr):
            if claim.kind == "written" and claim.about[0] == number:
                return int(claim.about[1])
            if claim.kind == "added" and claim.about[0] == number:
                _, term, opcode = claim.about
                begin = self._terms.number_in(first)
                if begin is None or begin != identity_of(opcode, shape):
                    raise _Wrong(f"element {number} of {self._loop.name} begins with {begin}")
                is_same = self._terms.terms[term].shape.text == shape.text
                return term if is_same else self._terms.wide(term, shape)
        raise _Wrong(f"element {number} of {self._loop.name} is not shown to be one of the program")
