"""Every instruction of the program: opcode, shape and operands, also where no text shows them.

What an unprinted instruction is follows from the values it holds: those of its operand are passed
on by a bitcast, those of one element by a get-tuple-element, others come out of a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, TypeGuard

from hlomem.base.errors import InputError
from hlomem.hlo.opcodes import ELEMENTWISE, RUN_IN_PLACE, as_opcode, opcodes_where
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.rebuild.fusions import find_sharing

if TYPE_CHECKING:
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.view.facts import Facts, Line, Parts, Read


@dataclass(slots=True, eq=False)
class Draft:
    """An instruction to be written."""

    name: str
    opcode: Opcode
    operands: list[str]
    line: Line | None = None
    """Its text, where the dump shows it."""
    shape: Shape | None = None
    attributes: str = ""
    callees: list[str] = field(default_factory=list)
    """The computations it runs in its own place in the schedule, as they run."""

    @property
    def is_async_start(self) -> bool:
        """Whether it runs something asynchronously; `slice-start` is short for that."""
        return bool(self.callees) and self.opcode.endswith("-start")


def draft_instructions(facts: Facts, operands: dict[str, list[str]]) -> dict[str, Draft]:
    """Opcodes and callees of all instructions, and the shapes the dump prints."""
    drafts: dict[str, Draft] = {}
    shown = _shapes_of_operands(facts)
    for name in sorted(operands, key=lambda each: facts.time_of.get(each, -1)):
        line = facts.lines.get(name)
        if line is None:
            draft = _draft_unprinted(name, operands[name], facts, drafts)
            draft.shape = shown.get(name)
        else:
            if line.opcode.endswith("-update"):
                problem = f"`{name}` updates an asynchronous operation, which cannot be rebuilt"
                raise InputError(f"{problem}: plan the module instead")
            draft = Draft(name, line.opcode, operands[name], line, line.shape)
            draft.callees = _callees_in_order(line)
            if _wraps_another(name, line, facts):
                draft.callees = [f"{name}.callee"]
        drafts[name] = draft
    return drafts


def _shapes_of_operands(facts: Facts) -> dict[str, Shape]:
    """The shapes older versions print beside operands."""
    return {
        name: parse_shape_text(shape)
        for line in facts.lines.values()
        for name, shape in zip(line.operands, line.operand_shapes, strict=True)
        if shape is not None and name not in facts.lines
    }


def _wraps_another(name: str, line: Line, facts: Facts) -> bool:
    """Whether `slice-start` is short for an async-start: then a slice defines its result."""
    if not line.opcode.endswith("-start") or line.opcode == "copy-start":
        return False
    results = [ids for index, ids in facts.held[name].items() if index[:1] == (1,)]
    definers = {facts.by_id[each].name for ids in results for each in ids} - {name}
    return any(facts.lines[each].opcode == line.opcode.removesuffix("-start") for each in definers)


def _callees_in_order(line: Line) -> list[str]:
    """The computations an instruction runs in its place; a loop's condition runs first."""
    if line.opcode not in RUN_IN_PLACE:
        return []
    callees = line.callees
    return [name for attribute in _IN_ORDER for name in callees.get(attribute, ())]


_IN_ORDER = (
    "condition",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "to_apply",
    "calls",
)


def _draft_unprinted(
    name: str, operands: list[str], facts: Facts, drafts: dict[str, Draft]
) -> Draft:
    if not operands:
        return Draft(name, "parameter", [])
    held, operand_held = facts.held[name], facts.held.get(operands[0], {})
    if len(operands) == 1:
        start = drafts.get(operands[0])
        if start is not None and start.opcode.endswith("-start"):
            opcode = "async" if start.is_async_start else start.opcode.removesuffix("-start")
            return Draft(name, as_opcode(f"{opcode}-done"), operands)
        element = _element_held(held, operand_held)
        if element is not None and _reads_only(element, facts.reads[name]):
            return Draft(name, "get-tuple-element", operands, attributes=f", index={element}")
        if held == operand_held:
            return Draft(name, "opt-barrier" if len(held) > 1 else "bitcast", operands)
    return Draft(name, "call", operands, callees=[f"{name}.callee"])


def _element_held(held: Parts, operand_held: Parts) -> int | None:
    """Which element of its operand an instruction holds."""
    elements = sorted({index[0] for index in operand_held if index})
    for number in elements:
        if all(operand_held.get((number, *index)) == values for index, values in held.items()):
            return number
    return None


def _reads_only(element: int, reads: list[Read]) -> bool:
    """Whether nothing below the top is read but one element, which only a result is."""
    return all(
        read.shape_index is not None and read.shape_index[:1] in ((), (element,)) for read in reads
    )


class Shapes:
    """The shapes of instructions, those that are not printed inferred from what they hold."""

    def __init__(self, facts: Facts, drafts: dict[str, Draft]) -> None:
        self._facts = facts
        self._drafts = drafts
        self._users: dict[str, list[Draft]] = {}
        for draft in drafts.values():
            for operand in draft.operands:
                self._users.setdefault(operand, []).append(draft)
        self.guessed: list[str] = []
        """Bitcasts whose shape nothing tells."""

    def __getitem__(self, name: str) -> Shape:
        draft = self._drafts[name]
        if draft.shape is None:
            draft.shape = self._infer(draft)
        return draft.shape

    def _infer(self, draft: Draft) -> Shape:
        if draft.opcode == "get-tuple-element":
            whole = self[draft.operands[0]]
            return whole.elements[int(draft.attributes.removeprefix(", index="))]
        if draft.opcode == "bitcast":
            return self._infer_bitcast(draft)
        # The table of a tuple is a value, too, so the top level tells the whole.
        value = self._facts.by_id[self._facts.held[draft.name][()][0]]
        return self._facts.lines[value.name].shape.subshape(value.index or ())

    def _infer_bitcast(self, bitcast: Draft) -> Shape:
        """The shape a user's text contains, or that of a user that was or may be written in its
        place; else that of its source."""
        source = self[bitcast.operands[0]]
        users = self._users.get(bitcast.name, ())
        for user in users:
            told = _shape_told_by(user, user.operands.index(bitcast.name))
            if told is not None:
                return told
        self.guessed.append(bitcast.name)
        for user in users:
            for sharing in find_sharing(user.name, self._facts) if user.opcode == "fusion" else ():
                if user.operands[sharing.operand] == bitcast.name and user.shape is not None:
                    return user.shape.subshape(sharing.output_index)
        for user in users:
            if user.opcode in _KEEPING_SHAPE and _are_alike(user.shape, source):
                return user.shape
        return source


def _shape_told_by(user: Draft, number: int) -> Shape | None:
    """The shape of an operand, where the result contains it."""
    if user.shape is None or not user.shape.is_tuple:
        return None
    if user.opcode == "tuple":
        return user.shape.elements[number]
    if user.opcode == "copy-start":
        return user.shape.elements[1]
    return user.shape.elements[0].elements[number] if user.is_async_start else None


_KEEPING_SHAPE = ELEMENTWISE | opcodes_where(
    lambda traits: traits.shares == "only first" or traits.shares == "same number"
)


def _are_alike(one: Shape | None, other: Shape) -> TypeGuard[Shape]:
    """Whether two arrays hold as many elements of one type."""
    return (
        one is not None
        and one.is_array
        and other.is_array
        and one.element_type is other.element_type
        and prod(one.dimensions) == prod(other.dimensions)
    )
