"""In which order the compiler made the instructions of a computation.

A computation lists its instructions in the order in which they were made, and the positions of a
value follow that list. The text shows the schedule instead; but which pass makes an instruction
follows from what it does, and passes run in a known order (`cpu_compiler.cc: RunHloPasses`):

1. what the program came with,
2. what passes made in its place: rewritten loops, and the parts of results of fusions and of
   inlined code,
3. bitcasts, made of reshapes once layouts are known,
4. calls of the parallel task assigner,
5. copy insertion: a new tuple for the start of a loop, then new parts of the parameter and a new
   result for its body (`AddCopiesForWhile`), or a new result of the program
   (`AddCopiesForAliasedInputOutputs`),
6. calls made for small loops.

Within one step the order is that of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.creation import is_derived, is_made_for_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_PROGRAM, _PASSES, _BITCASTS, _PARALLEL, _LOOP_STARTS, _LOOP_PARTS, _RESULTS, _SMALL_LOOPS = range(
    8
)


def instructions_by_age(computation: HloComputation, call_graph: CallGraph) -> list[HloInstruction]:
    """The instructions of a computation, the oldest first."""
    if call_graph.is_embedded(computation):
        return computation.instructions  # has no loops, and no copies are inserted
    steps: list[list[HloInstruction]] = [[] for _ in range(8)]
    program = steps[_PROGRAM]
    for instruction in computation.instructions:
        find_step = _STEP_OF.get(instruction.opcode)
        if find_step is None:
            program.append(instruction)
        else:
            steps[find_step(instruction, call_graph)].append(instruction)
    steps[_LOOP_PARTS].sort(key=lambda part: part.tuple_index)
    return [instruction for step in steps for instruction in step]


def reordered_users(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users of instructions, where XLA lists them in another order than the text does.

    An instruction lists its users in the order in which they were made or came to use it. Of those
    that it made ready itself the schedule has kept that order, because the scheduler walks through
    the same list (`hlo_memory_scheduler.cc: BFScheduler`); of others the text says nothing, except
    that copy insertion came last, and that code no pass touches, such as an adder,
    was read in post-order.
    """
    if call_graph.is_embedded(computation):
        if len(computation.instructions) <= _TOO_FEW_TO_DIFFER:
            return {}
        is_touched = any(each.opcode in _MADE_INSIDE for each in computation.instructions)
        return {} if is_touched else users_in_post_order(computation, call_graph)
    reordered: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in computation.instructions:
        if instruction.opcode == "copy":
            copied = instruction.operands[0]
            if len(copied.users) > 1 and copied not in reordered:
                reordered[copied] = _beside_copies(copied, call_graph)
        elif instruction.opcode in _FUSED_OR_NOT and instruction.name.startswith(_REDUCTIONS):
            window = instruction.operands[0]
            start = instruction.operands[-1]
            if window.name.startswith(_WINDOWS) and window.operands[-1] is start:
                if start not in reordered:
                    reordered[start] = start.users[:]
                _move_before(reordered[start], instruction, window)
    if _is_own_body(computation, call_graph):
        for operand in computation.root.operands:
            if _is_loop_invariant(operand) and len(operand.users) == _WITH_ONE_READER:
                reordered[operand] = operand.users[::-1]
    return reordered


def _move_before(users: list[HloInstruction], moved: HloInstruction, other: HloInstruction) -> None:
    """Move a user to the place before another, unless it comes before it already.

    `TreeReductionRewriter` makes a window and a new reduction, both beginning with the same value;
    when the old reduction is removed, the new one, listed last, moves to the front.
    """
    place, now = users.index(other), users.index(moved)
    if place < now:
        users.insert(place, users.pop(now))


def _beside_copies(copied: HloInstruction, call_graph: CallGraph) -> list[HloInstruction]:
    """The users of what is copied: copy insertion's come last.

    But a copy of a part of a loop's parameter was first put into a new tuple, and when the tuple
    simplifier had dropped that, the last user moved to the front.
    """
    users = copied.users
    if copied.opcode == "copy" and _is_part_of_loop(copied.operands[0], call_graph):
        return [users[-1], *users[:-1]]
    return sorted(users, key=lambda user: _is_of_copy_insertion(user, call_graph))


def _is_own_body(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it is the body of a loop that no pass has rewritten."""
    return _is_body(computation, call_graph) and not is_derived(computation, call_graph)


def _is_body(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it is the body of a loop."""
    return any(
        site.opcode == "while" and site.called_computations[0] is computation
        for site in call_graph.callsites[computation]
    )


def _is_part_of_loop(instruction: HloInstruction, call_graph: CallGraph) -> bool:
    """Whether it takes a part out of the parameter of a loop's body."""
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0].opcode == "parameter"
        and _is_body(instruction.parent, call_graph)
    )


_WITH_ONE_READER = 2
_TOO_FEW_TO_DIFFER = 4  # two parameters and two operations, one after the other


def _is_loop_invariant(operand: HloInstruction) -> bool:
    """Whether a loop's body returns a part of its parameter as it is.

    Such a part was made by copy insertion together with a new result, and when the tuple simplifier
    drops the old result, the new one takes its place in the list (`Users::RemoveUser` moves the
    last user into the gap): before the one that reads it, if there is one.
    """
    return (
        operand.opcode == "get-tuple-element"
        and operand.operands[0].opcode == "parameter"
        and operand.parent.root.operands[operand.tuple_index] is operand
    )


def users_in_post_order(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users of every instruction as a walk through the operands meets them."""
    rank = {each: i for i, each in enumerate(call_graph.post_order(computation))}
    return {
        instruction: sorted(instruction.users, key=rank.__getitem__)
        for instruction in computation.instructions
        if len(instruction.users) > 1
    }


def _is_of_copy_insertion(instruction: HloInstruction, call_graph: CallGraph) -> bool:
    if instruction.opcode == "tuple":
        return instruction.is_root and _is_copied_result(instruction, call_graph)
    # A copy that changes the layout is older.
    return instruction.opcode == "copy" and instruction.shape == instruction.operands[0].shape


def _step_of_tuple(instruction: HloInstruction, call_graph: CallGraph) -> int:
    if instruction.is_root:
        return _RESULTS if _is_copied_result(instruction, call_graph) else _PROGRAM
    for user in instruction.users:
        if user.opcode == "while" or _is_call_of_small_loop(user, call_graph):
            return _LOOP_STARTS
    return _PROGRAM


def _is_copied_result(root: HloInstruction, call_graph: CallGraph) -> bool:
    """Whether copy insertion made a new result, of whose copies some or none may be left."""
    computation = root.parent
    if computation is call_graph.module.entry and call_graph.module.input_output_alias:
        return True
    sites = call_graph.callsites[computation]
    return any(site.opcode in ("while", "conditional") for site in sites) or any(
        operand.opcode == "copy" for operand in root.operands
    )


def _step_of_part(instruction: HloInstruction, call_graph: CallGraph) -> int:
    whole = instruction.operands[0]
    if whole.opcode == "parameter":
        return _LOOP_PARTS if _is_body(instruction.parent, call_graph) else _PROGRAM
    if whole.opcode in _REWRITTEN or (whole.opcode == "sort" and _is_inlined(instruction)):
        return _PASSES
    return _step_of_while(whole, call_graph) if whole.opcode == "while" else _PROGRAM


def _step_of_while(instruction: HloInstruction, call_graph: CallGraph) -> int:
    return _PASSES if is_derived(instruction.called_computations[0], call_graph) else _PROGRAM


def _step_of_call(instruction: HloInstruction, call_graph: CallGraph) -> int:
    if _is_call_of_small_loop(instruction, call_graph):
        return _SMALL_LOOPS
    is_parallel = is_made_for_call(instruction.called_computations[0], call_graph)
    return _PARALLEL if is_parallel else _PROGRAM


def _is_call_of_small_loop(instruction: HloInstruction, call_graph: CallGraph) -> bool:
    """Whether `SmallWhileLoopHoistingPass` put a loop into a call."""
    if instruction.opcode != "call":
        return False
    callee = instruction.called_computations[0]
    return callee.root.opcode == "while" and is_made_for_call(callee, call_graph)


def _step_of_bitcast(_instruction: HloInstruction, _call_graph: CallGraph) -> int:
    return _BITCASTS


_STEP_OF: dict[str, Callable[[HloInstruction, CallGraph], int]] = {
    "tuple": _step_of_tuple,
    "get-tuple-element": _step_of_part,
    "while": _step_of_while,
    "call": _step_of_call,
    "bitcast": _step_of_bitcast,
}
_FUSED_OR_NOT = frozenset({"fusion", "reduce"})
_REDUCTIONS = ("wrapped_reduce", "reduce")
_WINDOWS = ("wrapped_reduce-window", "reduce-window")
_MADE_INSIDE = frozenset({"bitcast", "bitcast-convert", "fusion"})
"""What passes put into embedded computations: fusion, and `ComparisonExpander`."""
_REWRITTEN = frozenset({"fusion", "reduce", "custom-call"})
"""What has parts that the program did not come with, as a rule."""


def _is_inlined(instruction: HloInstruction) -> bool:
    """Whether it came from a function within the function that was compiled."""
    name = instruction.metadata.op_name
    return name.count("jit(") > (2 if "/jit(main)/" in name else 1)
