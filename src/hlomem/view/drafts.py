"""Every instruction of a dump's program: opcode and callees, also where no line shows them.

In: a joined dump and the operands of its instructions. Out: a `Draft` each. The opcode of an
unprinted instruction follows from the values it holds: those of its operand are passed on by a
bitcast, those of one element by a get-tuple-element, others come out of a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from hlomem.hlo.opcodes import RUN_IN_PLACE, as_opcode

if TYPE_CHECKING:
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, Parts, Read


class Draft(Struct, eq=False):
    """An instruction to be written."""

    name: str
    opcode: Opcode
    operands: list[str]
    line: PrintedInstruction | None = None
    """Its text, where the dump shows it."""
    shape: Shape | None = None
    attributes: str = ""
    callees: list[str] = field(default_factory=list)
    """The computations it runs in its own place in the schedule, as they run."""

    @property
    def is_async_start(self) -> bool:
        """Whether it runs something asynchronously; `slice-start` is short for that."""
        return bool(self.callees) and self.opcode.endswith("-start")


def draft_instructions(joined: JoinedDump, operands: dict[str, list[str]]) -> dict[str, Draft]:
    """Opcodes and callees of all instructions."""
    drafts: dict[str, Draft] = {}
    for name in sorted(operands, key=lambda operand: joined.time_of.get(operand, -1)):
        line = joined.printed.get(name)
        if line is None:
            draft = _draft_unprinted(name, operands[name], joined, drafts)
        else:
            draft = Draft(name, line.opcode, operands[name], line)
            draft.callees = _callees_in_order(line)
            if _wraps_another(name, line, joined):
                draft.callees = [f"{name}.callee"]
        drafts[name] = draft
    return drafts


def _wraps_another(name: str, line: PrintedInstruction, joined: JoinedDump) -> bool:
    """Whether `slice-start` is short for an async-start: then a slice defines its result.

    What writes over an operand shows its result only when it is done. Then it is the wrapped
    instruction's place that tells: a callee stands right before its caller.
    """
    if not line.opcode.endswith("-start") or line.opcode == "copy-start":
        return False
    results = [ids for index, ids in joined.held.get(name, {}).items() if index[:1] == (1,)]
    definers = {joined.used_by_id[value_id].name for ids in results for value_id in ids} - {name}
    if _reads_through_parameters(name, line, joined):
        definers.add(joined.sequence[joined.time_of[name] - 1])
    wrapped = {joined.printed[definer].opcode for definer in definers if definer in joined.printed}
    return line.opcode.removesuffix("-start") in wrapped


def _reads_through_parameters(name: str, line: PrintedInstruction, joined: JoinedDump) -> bool:
    """Whether the instruction before reads other names for just what this one reads."""
    time = joined.time_of.get(name, 0)
    before = joined.printed.get(joined.sequence[time - 1]) if time else None
    if before is None or len(before.operands) != len(line.operands):
        return False
    return all(
        inner != outer and joined.held.get(inner, {}) == joined.held.get(outer)
        for inner, outer in zip(before.operands, line.operands, strict=True)
    )


def _callees_in_order(line: PrintedInstruction) -> list[str]:
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
    name: str, operands: list[str], joined: JoinedDump, drafts: dict[str, Draft]
) -> Draft:
    if not operands:
        return Draft(name, "parameter", [])
    held, operand_held = joined.held[name], joined.held.get(operands[0], {})
    if len(operands) == 1:
        start = drafts.get(operands[0])
        if start is not None and start.opcode.endswith("-start"):
            opcode = "async" if start.is_async_start else start.opcode.removesuffix("-start")
            return Draft(name, as_opcode(f"{opcode}-done"), operands)
        element = _element_held(held, operand_held)
        if element is not None and _reads_only(element, joined.reads.get(name, [])):
            return Draft(name, "get-tuple-element", operands, attributes=f", index={element}")
        if held == operand_held:
            return Draft(name, "opt-barrier" if len(held) > 1 else "bitcast", operands)
    return Draft(name, "call", operands, callees=[f"{name}.callee"])


def _element_held(held: Parts, operand_held: Parts) -> int | None:
    """The number of the operand's element that an instruction holds."""
    elements = sorted({index[0] for index in operand_held if index})
    for number in elements:
        if all(operand_held.get((number, *index)) == values for index, values in held.items()):
            return number
    return None


def _reads_only(element: int, reads: list[Read]) -> bool:
    """Whether nothing below the top is read but one element."""
    return all(
        read.shape_index is not None and read.shape_index[:1] in ((), (element,)) for read in reads
    )
