"""A checker of kernels: each rounds as one of the given program does, or in one way only.

A compiler makes one kernel of a fusion, and may contract, vectorize or order its arithmetic by what
else is in it. So the last bits are safe where a fusion has all the arithmetic of one that was
there, on values of the same shapes, wherever it loads and stores them, slices of stacks included;
or does no more than move elements, count, compare and convert, which rounds in one way only. Where
a compiler chooses by the whole of a fusion, a plain loop may still load other values, or compute
them in one way only: each element is computed by itself, by the same arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.checks.edit import Classes, Key, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

_ROUNDED_ONE_WAY = """
    abs add-dependency after-all and bitcast bitcast-convert broadcast clamp compare concatenate
    constant convert copy dynamic-slice dynamic-update-slice gather get-tuple-element iota is-finite
    maximum minimum negate not opt-barrier or pad parameter reshape reverse select sign slice tuple
    transpose xor
"""
_SAFE = frozenset(_ROUNDED_ONE_WAY.split())
_INTEGERS = ("pred", "s", "u")
_LOADING = ("bitcast", "dynamic-slice", "parameter")
_WRITE = "dynamic-update-slice"
_OPAQUE = "kCustom"
_LOOP = "kLoop"


def find_rounding_problems(
    given: HloModule, edited: HloModule, *, is_whole: bool = False
) -> list[str]:
    """The fusions of an edited program that may round otherwise; empty where none can.

    With `is_whole` they must be those of the given program, loads and stores included, for
    compilers that choose how to compute a fusion by all of it.
    """
    classes = Classes()
    known = {_arithmetic_of(one, classes, is_whole=is_whole) for one in _fusions(given)}
    return [
        f"{one.name} is computed in another fusion"
        for one in _fusions(edited)
        if not rounds_one_way(one.called_computations[0])
        and _arithmetic_of(one, classes, is_whole=is_whole) not in known
    ]


def _arithmetic_of(fusion: HloInstruction, classes: Classes, *, is_whole: bool) -> Key:
    """The arithmetic of a fusion on what it loads, without where it loads and stores it."""
    [body] = fusion.called_computations
    kind = fusion.attributes.get("kind")
    if kind == _OPAQUE or any(map(_runs_more, body.instructions)):
        return "whole", classes.of_body(body)
    if is_whole:
        is_loop = kind == _LOOP and not any(one.called_computations for one in body.instructions)
        return _Loop().of(body) if is_loop else ("whole", classes.of_body(body))
    return _Arithmetic(classes).of(body)


def _runs_more(instruction: HloInstruction) -> bool:
    return instruction.opcode == "fusion"


class _Arithmetic:
    """The expressions of one body; what they load is numbered as it is met."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._loaded: dict[HloInstruction, int] = {}
        self._number_of: dict[Key, int] = {}
        self._known: dict[HloInstruction, int] = {}

    def of(self, body: HloComputation) -> Key:
        roots = body.root.operands if body.root.opcode == "tuple" else (body.root,)
        stored = [_stored(root) for root in roots]
        needed = _needed(stored)
        for instruction in body.instructions:
            if instruction in needed and instruction.opcode not in _LOADING:
                self._known[instruction] = self._number(self._expression(instruction))
        return (*self._number_of, tuple(map(self._value, stored)))

    def _number(self, key: Key) -> int:
        return self._number_of.setdefault(key, len(self._number_of))

    def _value(self, instruction: HloInstruction) -> int:
        """An expression, or something loaded, in its shape."""
        known = self._known.get(instruction)
        if known is None:
            source = instruction
            while source.opcode in _LOADING and source.operands:
                source = source.operands[0]
            if source in self._known:
                key: Key = ("as", self._known[source], instruction.shape.text)
            else:
                place = self._loaded.setdefault(source, len(self._loaded))
                key = ("loaded", place, _squeezed(instruction))
            known = self._known[instruction] = self._number(key)
        return known

    def _expression(self, instruction: HloInstruction) -> Key:
        return (
            *text_of(instruction),
            instruction.shape.text,
            tuple(self._value(operand) for operand in instruction.operands),
            tuple(map(self._classes.of_body, instruction.called_computations)),
        )


class _Loop:
    """The expressions of one element of a loop; what rounds in one way only is taken as loaded."""

    def __init__(self) -> None:
        self._number_of: dict[Key, int] = {}
        self._known: dict[HloInstruction, int] = {}
        self._loaded: set[HloInstruction] = set()
        """Values that are loaded, or computed of such in one way only."""

    def of(self, body: HloComputation) -> Key:
        for one in body.instructions:
            is_safe = one.opcode in _SAFE or _is_integer(one)
            if is_safe and all(operand in self._loaded for operand in one.operands):
                self._loaded.add(one)
        pending = [body.root]
        while pending:
            one = pending[-1]
            missing = [operand for operand in self._parts(one) if operand not in self._known]
            if missing:
                pending.append(missing[0])
            else:
                pending.pop()
                key = self._key(one)
                self._known.setdefault(one, self._number_of.setdefault(key, len(self._number_of)))
        return "loop", self._known[body.root], tuple(self._number_of)

    def _parts(self, instruction: HloInstruction) -> Sequence[HloInstruction]:
        """The operands that count."""
        is_loaded = instruction in self._loaded and not _is_constant(instruction)
        return () if is_loaded else instruction.operands

    def _key(self, instruction: HloInstruction) -> Key:
        parts = self._parts(instruction)
        if not parts and instruction.opcode != "constant":
            return "loaded", len(self._known), instruction.shape.text
        operands = tuple([self._known[operand] for operand in parts])
        return (*text_of(instruction), instruction.shape.text, operands)


def _is_constant(instruction: HloInstruction) -> bool:
    """Whether a value is the same in all runs."""
    return instruction.opcode == "constant" or (
        bool(instruction.operands) and all(map(_is_constant, instruction.operands))
    )


def _needed(stored: list[HloInstruction]) -> set[HloInstruction]:
    """All that values are computed of; of what is loaded not where it lies."""
    found: set[HloInstruction] = set()
    pending = list(stored)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += value.operands[:1] if value.opcode in _LOADING else value.operands
    return found


def _stored(root: HloInstruction) -> HloInstruction:
    """The value that a root is, or writes to a slice."""
    while root.opcode in ("bitcast", _WRITE):
        root = root.operands[1 if root.opcode == _WRITE else 0]
    return root


def _squeezed(instruction: HloInstruction) -> Key:
    """The element type and dimensions of a value, those of one element left out."""
    shape = instruction.shape
    return shape.element_type.text, *[size for size in shape.dimensions if size != 1]


def _fusions(module: HloModule) -> Iterator[HloInstruction]:
    """The fusions that run, asynchronous ones too."""
    for computation in module.outer_computations:
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                yield instruction


def rounds_one_way(body: HloComputation) -> bool:
    """Whether nothing in a fusion rounds in more than one way."""
    pending, seen = [body], set[str]()
    while pending:
        computation = pending.pop()
        if computation.name in seen:
            continue
        seen.add(computation.name)
        for inside in computation.instructions:
            pending += inside.called_computations
            if inside.opcode not in _SAFE | {"fusion"} and not _is_integer(inside):
                return False
    return True


def _is_integer(instruction: HloInstruction) -> bool:
    shape = instruction.shape
    return shape.is_array and shape.element_type.text.startswith(_INTEGERS)
