"""In which order the GPU compiler made the instructions of a computation.

As `instruction_order.py`, for the passes of `service/gpu/gpu_compiler.cc`. One of them tells the
old from the new: before fusion `AddTrackingSuffixToInstructionNames` puts `.0` behind the names of
all that might be fused. What is asked about is what hands values on; in order:

1. what the program came with, parameters first, loops and branches included,
2. what passes made before fusion: parts of results, new operands of branches,
3. bitcasts of that time, numbered; then transfers from and to the host,
4. what fusion and the combiners of collectives made: parts of their results, and bitcasts,
5. asynchronous collectives, numbered,
6. copy insertion: a new tuple for the start of a loop, new parts of its parameter, new results,
7. parts of fusions that took a copy in (`CopyFusion`),
8. other asynchronous operations, numbered.

Within one step the order is that of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.creation import is_derived
from hlomem.history.names import split_number
from hlomem.hlo.opcodes import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

(
    _PARAMETERS,
    _PROGRAM,
    _PASSES,
    _BITCASTS,
    _TRANSFERS,
    _FUSION,
    _COLLECTIVES,
    _LOOP_STARTS,
    _LOOP_PARTS,
    _RESULTS,
    _COPY_FUSION,
    _ASYNC,
) = range(12)

_TRACKED = ".0"


def gpu_instructions_by_age(
    computation: HloComputation, call_graph: CallGraph
) -> list[HloInstruction]:
    """The instructions of a computation, the oldest first."""
    if call_graph.is_embedded(computation):
        return computation.instructions
    return sorted(computation.instructions, key=lambda each: _age(each, call_graph))


def _age(instruction: HloInstruction, call_graph: CallGraph) -> tuple[int, int, int]:
    if instruction.opcode == "parameter":
        return _PARAMETERS, instruction.parameter_number, 0
    find_step = _STEP_OF.get(instruction.opcode)
    step = _PROGRAM if find_step is None else find_step(instruction, call_graph)
    number = name_number(instruction) if step in _NUMBERED else 0
    if step == _LOOP_PARTS:
        number = instruction.tuple_index
    return step, number, instruction.index


def name_number(instruction: HloInstruction) -> int:
    """The number in its name, the suffix left out."""
    return split_number(instruction.name.removesuffix(_TRACKED))[1]


def is_tracked(instruction: HloInstruction) -> bool:
    """Whether it was there before fusion."""
    return instruction.name.endswith(_TRACKED)


def _step_of_tuple(instruction: HloInstruction, _: CallGraph) -> int:
    if is_tracked(instruction):
        is_new = not instruction.is_root and instruction.name.startswith("tuple.")
        return _PASSES if is_new else _PROGRAM
    if any(user.opcode == "while" for user in instruction.users):
        return _LOOP_STARTS
    return _RESULTS


def _step_of_while(instruction: HloInstruction, call_graph: CallGraph) -> int:
    return _PASSES if is_derived(instruction.called_computations[0], call_graph) else _PROGRAM


def _step_of_part(instruction: HloInstruction, call_graph: CallGraph) -> int:
    whole = instruction.operands[0]
    if whole.opcode == "while":
        is_new = is_tracked(instruction) and instruction.name.startswith(instruction.opcode)
        return _PASSES if is_new else _step_of_while(whole, call_graph)
    if whole.opcode == "tuple":
        return _step_of_tuple(whole, call_graph)
    if is_tracked(instruction):
        return _PROGRAM if whole.opcode in _OF_PROGRAM else _PASSES
    if whole.opcode == "parameter":
        return _LOOP_PARTS if is_of_loop(whole.parent, call_graph) else _PROGRAM
    return _COPY_FUSION if took_copy_in(whole, call_graph) else _FUSION


def took_copy_in(instruction: HloInstruction, call_graph: CallGraph) -> bool:
    """Whether a fusion returns a copy beside what is copied."""
    if instruction.opcode != "fusion":
        return False
    body = instruction.called_computations[0]
    if "copy" not in call_graph.bodies[body].opcodes:
        return False
    return any(each.opcode == "copy" for each in body.root.operands)


def is_of_loop(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it is the body or the condition of a loop."""
    return any(site.opcode == "while" for site in call_graph.callsites[computation])


def _step_of_bitcast(instruction: HloInstruction, _: CallGraph) -> int:
    return _BITCASTS if is_tracked(instruction) else _FUSION


def _step_of_copy(_instruction: HloInstruction, _: CallGraph) -> int:
    return _TRANSFERS


def _step_of_async(instruction: HloInstruction, _: CallGraph) -> int:
    computation = instruction.async_wrapped_computation
    if computation is not None and computation.root.opcode in COLLECTIVES:
        return _COLLECTIVES
    return _ASYNC if instruction.name.startswith(_MADE_LATE) else _TRANSFERS


_NUMBERED = frozenset({_BITCASTS, _COLLECTIVES, _ASYNC})
_OF_PROGRAM = frozenset({"parameter", "conditional"})
_MADE_LATE = ("copy-", "fusion-")
_STEP_OF: dict[str, Callable[[HloInstruction, CallGraph], int]] = {
    "async-done": _step_of_async,
    "async-start": _step_of_async,
    "bitcast": _step_of_bitcast,
    "copy-done": _step_of_copy,
    "copy-start": _step_of_copy,
    "get-tuple-element": _step_of_part,
    "tuple": _step_of_tuple,
    "while": _step_of_while,
}
