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
    from collections.abc import Iterator, Mapping, Sequence

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
_CONTRACTED = ("add", "subtract")


def find_rounding_problems(
    given: HloModule, edited: HloModule, *, is_whole: bool = False
) -> list[str]:
    """The fusions of an edited program that may round otherwise; empty where none can.

    With `is_whole` they must be those of the given program, loads and stores included, for
    compilers that choose how to compute a fusion by all of it, unless they are plain loops.
    """
    classes = Classes()
    keys_of = _keys_of_kernel if is_whole else _keys_of_arithmetic
    known = {key for one in _fusions(given) for key in keys_of(one, classes)}
    return [
        f"{one.name} is computed in another fusion"
        for one in _fusions(edited)
        if not rounds_one_way(one.called_computations[0])
        and not known.issuperset(keys_of(one, classes))
    ]


def _keys_of_arithmetic(fusion: HloInstruction, classes: Classes) -> list[Key]:
    """The arithmetic of a fusion on what it loads, without where it loads and stores it."""
    [body] = fusion.called_computations
    if fusion.attributes.get("kind") == _OPAQUE or any(map(_runs_more, body.instructions)):
        return [("whole", classes.of_body(body))]
    return [_Arithmetic(classes).of(body)]


def _keys_of_kernel(fusion: HloInstruction, classes: Classes) -> list[Key]:
    """All of a fusion, or, of a loop, the arithmetic of one element of each result."""
    [body] = fusion.called_computations
    kind = fusion.attributes.get("kind")
    if kind == _LOOP and not any(one.called_computations for one in body.instructions):
        return list(_Loop(body).keys())
    if kind == _OPAQUE or any(map(_runs_more, body.instructions)):
        return [("whole", classes.of_body(body))]
    return [_whole(body, classes)]


def _whole(body: HloComputation, classes: Classes) -> Key:
    """A body, whatever the number of slices in the stacks that it takes slices of."""
    numbers: dict[HloInstruction, Key] = {}
    number_of: dict[Key, int] = {}
    for one in body.instructions:
        shape = one.shape.text
        if one.opcode == "parameter" and one.users and all(_takes_slice(one, u) for u in one.users):
            shape = one.users[0].shape.text
        key: Key = (
            *text_of(one, by_indices=True),
            shape,
            tuple([numbers[operand] for operand in one.operands]),
            tuple(map(classes.of_body, one.called_computations)),
        )
        numbers[one] = ("number", number_of.setdefault(key, len(number_of)))
    return "kernel", numbers[body.root], tuple(number_of)


def _takes_slice(stack: HloInstruction, user: HloInstruction) -> bool:
    """Whether a user takes one slice of a stack."""
    if user.opcode != "dynamic-slice" or user.operands[0] is not stack:
        return False
    return user.shape.dimensions == (1, *stack.shape.dimensions[1:])


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
    """The results of a loop, each of whose elements is computed by itself.

    What is loaded, or computed of such in one way only, is numbered as it is met. A product that is
    added to something may be contracted with that, by how often it is used.
    """

    def __init__(self, body: HloComputation) -> None:
        self._body = body
        self._loaded: set[HloInstruction] = set()
        for one in body.instructions:
            is_safe = one.opcode in _SAFE or _is_integer(one) or _adds_nothing(one)
            if is_safe and all(operand in self._loaded for operand in one.operands):
                self._loaded.add(one)

    def keys(self) -> Iterator[Key]:
        root = self._body.root
        for result in root.operands if root.opcode == "tuple" else (root,):
            yield self._key_of(_stored(result))

    def _key_of(self, result: HloInstruction) -> Key:
        """The arithmetic that leads to one result."""
        known: dict[HloInstruction, int] = {}
        number_of: dict[Key, int] = {}
        pending = [result]
        while pending:
            one = pending[-1]
            missing = [operand for operand in self._parts(one) if operand not in known]
            if missing:
                pending.append(missing[0])
                continue
            pending.pop()
            if one not in known:
                key = self._operation(one, known)
                known[one] = number_of.setdefault(key, len(number_of))
        return "loop", known[result], tuple(number_of)

    def _operation(self, one: HloInstruction, known: Mapping[HloInstruction, int]) -> Key:
        parts = self._parts(one)
        if not parts and one.opcode != "constant":
            return "loaded", len(known), one.shape.element_type.text
        is_added = any(user.opcode in _CONTRACTED for user in one.users)
        uses = len(one.users) if one.opcode == "multiply" and is_added else 0
        kind = one.shape.element_type.text
        return (*text_of(one), kind, uses, tuple([known[operand] for operand in parts]))

    def _parts(self, instruction: HloInstruction) -> Sequence[HloInstruction]:
        """The operands that count."""
        is_loaded = instruction in self._loaded and not _is_constant(instruction)
        return () if is_loaded else instruction.operands


def _adds_nothing(instruction: HloInstruction) -> bool:
    """Whether zero is added to something, which changes no number but minus zero."""
    if instruction.opcode != "add":
        return False
    wide = [one for one in instruction.operands if one.opcode == "broadcast"]
    return any(one.operands[0].payload == "0" for one in wide)


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
