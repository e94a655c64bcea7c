"""Opcode and callees of every instruction; of unprinted ones, by the values they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from hlomem.hlo.opcodes import RUN_IN_PLACE, Opcode, as_opcode

if TYPE_CHECKING:
    from hlomem.hlo.shape import Shape
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, Parts, Read


class Draft(Struct, eq=False):
    name: str
    opcode: Opcode
    operands: list[str]
    line: PrintedInstruction | None = None
    """Its text, if the dump shows it."""
    shape: Shape | None = None
    attributes: str = ""
    callees: list[str] = field(default_factory=list)
    """The scheduled computations it runs, in execution order."""

    runner: Draft | None = None
    """For an asynchronous start or update, `slice-start` and the like included: the operation of
    its chain that has all operands, which runs the wrapped computation."""
    bound: list[str] = field(default_factory=list)
    """The operands of the wrapped computation so far."""

    @property
    def is_async(self) -> bool:
        return self.runner is not None


def draft_instructions(joined: JoinedDump, operands: dict[str, list[str]]) -> dict[str, Draft]:
    drafts: dict[str, Draft] = {}
    for name in sorted(operands, key=lambda operand: joined.time_of.get(operand, -1)):
        line = joined.printed.get(name)
        if line is None:
            draft = _draft_unprinted(name, operands[name], joined, drafts)
        else:
            draft = Draft(name, line.opcode, operands[name], line)
            draft.callees = _callees_in_order(line)
            _bind(draft, line, joined, drafts)
        drafts[name] = draft
    return drafts


def _bind(
    draft: Draft, line: PrintedInstruction, joined: JoinedDump, drafts: dict[str, Draft]
) -> None:
    """Set bound operands and runner (`IsFirstFullyBound` of hlo_instruction_utils.cc)."""
    suffix = _suffix(line)
    if not suffix:
        return
    before = drafts.get(draft.operands[0]) if suffix == _UPDATE and draft.operands else None
    draft.bound = [*before.bound, *draft.operands[1:]] if before else list(draft.operands)
    if before is not None and before.is_async:
        draft.runner = before.runner
    elif _wraps_another(draft, line, joined):
        draft.callees = [f"{draft.name}.callee"]
        draft.runner = draft
        while before is not None:
            before.runner = draft
            is_update = before.opcode.endswith(_UPDATE) and bool(before.operands)
            before = drafts.get(before.operands[0]) if is_update else None


_START, _UPDATE = "-start", "-update"


def _suffix(line: PrintedInstruction) -> str:
    """`-start` or `-update`, if an instruction may be part of an asynchronous chain."""
    if line.opcode == "copy-start":
        return ""
    return next((suffix for suffix in (_START, _UPDATE) if line.opcode.endswith(suffix)), "")


def _wraps_another(draft: Draft, line: PrintedInstruction, joined: JoinedDump) -> bool:
    """Whether `slice-start` is short for an async-start: then a slice defines its result.

    In-place operations show their result only when done; their wrapped instruction directly
    precedes them.
    """
    name = draft.name
    results = [ids for index, ids in joined.held.get(name, {}).items() if index[:1] == (1,)]
    definers = {joined.used_by_id[value_id].name for ids in results for value_id in ids} - {name}
    if _reads_through_parameters(draft, joined):
        definers.add(joined.sequence[joined.time_of[name] - 1])
    wrapped = {joined.printed[definer].opcode for definer in definers if definer in joined.printed}
    return line.opcode.removesuffix(_suffix(line)) in wrapped


def _reads_through_parameters(draft: Draft, joined: JoinedDump) -> bool:
    """Whether the previous instruction reads the same values under other names."""
    time = joined.time_of.get(draft.name, 0)
    before = joined.printed.get(joined.sequence[time - 1]) if time else None
    if before is None or len(before.operands) != len(draft.bound):
        return False
    return all(
        inner != outer and joined.held.get(inner, {}) == joined.held.get(outer)
        for inner, outer in zip(before.operands, draft.bound, strict=True)
    )


def _callees_in_order(line: PrintedInstruction) -> list[str]:
    """The scheduled computations an instruction runs; a loop's condition first."""
    if line.opcode not in RUN_IN_PLACE:
        return []
    callees = line.callees
    return [name for attribute in _IN_ORDER for name in callees.get(attribute, ())]


_IN_ORDER = (
    *("condition", "body", "branch_computations", "true_computation", "false_computation"),
    *("to_apply", "calls"),
)


def _draft_unprinted(
    name: str, operands: list[str], joined: JoinedDump, drafts: dict[str, Draft]
) -> Draft:
    if not operands:
        return Draft(name, "parameter", [])
    if len(operands) == 1:
        draft = _draft_of_one(name, operands, joined, drafts.get(operands[0]))
        if draft is not None:
            return draft
    return Draft(name, "call", operands, callees=[f"{name}.callee"])


def _draft_of_one(
    name: str, operands: list[str], joined: JoinedDump, operand: Draft | None
) -> Draft | None:
    """An instruction that forwards the values of its operand, or of a part of it."""
    held, operand_held = joined.held[name], joined.held.get(operands[0], {})
    element = _element_held(held, operand_held)
    is_element = element is not None and _reads_only(element, joined.reads.get(name, []))
    if operand is not None and not (is_element and element == 0):  # 0 holds the start's operands
        if operand.is_async:
            return Draft(name, "async-done", operands)
        if operand.opcode.endswith(_START):
            return Draft(name, as_opcode(f"{operand.opcode.removesuffix(_START)}-done"), operands)
    if is_element:
        return Draft(name, "get-tuple-element", operands, attributes=f", index={element}")
    if element == 1 and _is_started(operand_held):
        return Draft(name, "async-done", operands)
    if held == operand_held:
        return Draft(name, "opt-barrier" if len(held) > 1 else "bitcast", operands)
    return None


def _is_started(held: Parts) -> bool:
    """Whether a tuple has the form of an async-start: operands, a result, a context."""
    elements = {index[0] for index in held if index}
    return elements == {0, 1, 2} and (0, 0) in held


def _element_held(held: Parts, operand_held: Parts) -> int | None:
    """The number of the operand's element that an instruction holds."""
    elements = sorted({index[0] for index in operand_held if index})
    for number in elements:
        if all(operand_held.get((number, *index)) == values for index, values in held.items()):
            return number
    return None


def _reads_only(element: int, reads: list[Read]) -> bool:
    return all(
        read.shape_index is not None and read.shape_index[:1] in ((), (element,)) for read in reads
    )
