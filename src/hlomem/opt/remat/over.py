"""Results written over operands that are read there for the last time, where XLA would not do so.

XLA's heap lets an elementwise fusion write over such an operand only if the operand's own
instruction makes the value (`HeapSimulator::RunComputation`): never what comes out of a tuple, as
every product of a library does that has a workspace. The fusion can declare it, though
(`output_to_operand_aliasing`): then both are one buffer. Operand and result must have the same
shape for that, so the operand may need a bitcast before the fusion, and one back inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.analysis.alias_rules import can_share_operand_buffer
from hlomem.analysis.machine_rules import rules_of
from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import relink
from hlomem.hlo.padding import element_count
from hlomem.hlo.schedule import running_computations
from hlomem.hlo.shape import ROOT_INDEX, default_layout
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.loops.fusion_edit import LoopDraft
from hlomem.opt.loops.offsets import HERE
from hlomem.opt.orders.flow import Flow, FlowBuilder
from hlomem.opt.orders.model import levels_of, peak_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.pipeline import Stages

_DECLARED = "output_to_operand_aliasing"
_HANDING_ON = ("bitcast", "get-tuple-element")


class Over(NamedTuple):
    """A value that may be written over another, by numbers of a flow."""

    node: int
    value: int
    under: int
    operand: int
    """The number of the operand that holds what is written over."""


def may_declare(stages: Stages) -> bool:
    """Whether the machine is one whose compiler was seen to take such declarations."""
    return stages.options.machine.changed_after_hook == "fusions"


def find_overs(stages: Stages, flow: Flow) -> list[Over]:
    """The pairs that XLA leaves apart, of which the kernel reads each element where it writes."""
    if not may_declare(stages):
        return []
    number_of = {value: number for number, value in enumerate(flow.origins)}
    rules = rules_of(stages.options.machine)
    found: list[Over] = []
    for node, fusion in enumerate(flow.nodes):
        if not _is_plain_loop(fusion):
            continue
        own = next((number_of.get(value) for value in stages.dataflow.value_sets[fusion][0]), None)
        if own is None or flow.values[own].lives_on or not _is_first(flow, own):
            continue
        for number, operand in enumerate(fusion.operands):
            under = _under(stages, fusion, operand)
            if under not in number_of or not _may_be_declared(operand.shape, fusion.shape):
                continue
            if can_share_operand_buffer(
                stages.dataflow, operand, ROOT_INDEX, fusion, ROOT_INDEX, rules
            ):
                found.append(Over(node, own, number_of[under], number))
    return found


def _is_first(flow: Flow, number: int) -> bool:
    """Whether the memory of a value has held no other before."""
    own = flow.values[number]
    return all(value.made_by >= own.made_by for value in flow.values if value.buffer == own.buffer)


def _is_plain_loop(fusion: HloInstruction) -> bool:
    """Whether each thread computes some elements of one array from those at the same indices."""
    if fusion.opcode != "fusion" or not fusion.shape.is_array:
        return False
    return fusion.attributes.get("kind") == "kLoop" and _DECLARED not in fusion.attributes


def _under(stages: Stages, fusion: HloInstruction, operand: HloInstruction) -> HloValue | None:
    """The value that an operand hands on, if only this operand of a fusion holds it."""
    if operand.opcode not in _HANDING_ON or not operand.shape.is_array:
        return None
    held = stages.dataflow.value_sets
    values = list(held[operand][0])
    others = [one for one in fusion.operands if set(held[one][0]) & set(values)]
    if len(values) != 1 or others != [operand]:
        return None
    return values[0] if len(stages.aliasing.buffer_of[values[0]].values) == 1 else None


def _may_be_declared(operand: Shape, result: Shape) -> bool:
    """Whether one is the other by a bitcast."""
    if operand == result:
        return True
    plain = all(shape.layout in (None, default_layout(shape.rank)) for shape in (operand, result))
    same = element_count(operand) == element_count(result)
    return plain and same and operand.element_type is result.element_type


def with_overs(flow: Flow, overs: Sequence[Over]) -> Flow:
    """The flow in which these pairs share their bytes, too."""
    shares = {node: list(pairs) for node, pairs in flow.shares.items()}
    for over in overs:
        pairs = shares.setdefault(over.node, [])
        known = next((under for value, under in pairs if value == over.value), ())
        pairs[:] = [pair for pair in pairs if pair[0] != over.value]
        pairs.append((over.value, (*known, over.under)))
    return replace(flow, shares=shares)


# The edit.


def write_over(candidate: Candidate) -> Candidate | None:
    """The program that writes over operands where it keeps most alive, if that needs less."""
    stages = candidate.plan
    if not may_declare(stages):
        return None
    chosen = _choose(stages)
    if not chosen:
        return None
    try:
        module = _declare(stages, chosen)
    except EditError:
        return None
    made = changed(candidate, module, "over")
    return made if made.temporaries < candidate.temporaries else None


def _choose(stages: Stages) -> dict[HloInstruction, int]:
    """By fusion the operand that it writes over: those above what is kept at least."""
    builder = FlowBuilder(stages)
    peaks: dict[HloComputation, int] = {}
    chosen: dict[HloInstruction, int] = {}
    for computation in builder.computations():
        flow = builder.build(computation, peaks)
        order = range(len(flow.nodes))
        overs = find_overs(stages, flow)
        lower = with_overs(flow, overs) if overs else flow
        peaks[computation] = peak_of(lower, order)
        levels = levels_of(flow, order) if overs else ()
        for over in overs:
            last = max(flow.values[over.under].readers)
            is_high = levels[over.node] > peaks[computation]
            if is_high and last == over.node and not flow.values[over.under].lives_on:
                chosen.setdefault(flow.nodes[over.node], over.operand)
    return chosen


def _declare(stages: Stages, chosen: Mapping[HloInstruction, int]) -> HloModule:
    """The module with these declarations, in the order of its plan."""
    draft = LoopDraft(stages.module)
    draft.moved = HERE
    for computation in running_computations(stages.module):
        body = draft.body(computation)
        sequence = stages.schedule.sequence(computation)
        body.instructions = [draft.instruction(one) for one in sequence]
        for fusion in sequence:
            if fusion in chosen:
                _declare_one(draft, draft.instruction(fusion), chosen[fusion])
    return draft.finish()


def _declare_one(draft: LoopDraft, fusion: HloInstruction, number: int) -> None:
    operand = fusion.operands[number]
    if operand.shape != fusion.shape:
        body = draft.body(fusion.parent)
        view = body.make(draft.new(operand.name), fusion.shape, "bitcast", [operand])
        body.put_before(fusion, view)
        operands = list(fusion.operands)
        operands[number] = view
        fusion.operands = tuple(operands)
        callee = draft.clone_fused(fusion.called_computations[0], "over")
        fusion.called_computations = (callee,)
        relink(fusion)
        _view_inside(draft, callee, number, fusion.shape)
    declared = {"kind": fusion.attributes["kind"], _DECLARED: f"{{{{}}: ({number}, {{}})}}"}
    fusion.set_attributes({**declared, **fusion.attributes})


def _view_inside(draft: LoopDraft, callee: HloComputation, number: int, shape: Shape) -> None:
    """Let a parameter have another shape, and those that read it read a bitcast of it."""
    inside = draft.draft(callee)
    parameter = next(
        one
        for one in inside.instructions
        if one.opcode == "parameter" and one.parameter_number == number
    )
    view = inside.make(draft.new(parameter.name), parameter.shape, "bitcast", [parameter])
    for user in inside.users(parameter):
        user.operands = tuple([view if one is parameter else one for one in user.operands])
    inside.put_after([parameter], view)
    parameter.shape = shape
