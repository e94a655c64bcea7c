"""The steps in which the GPU compiler makes the instructions of a computation.

Mirrors the order of passes in `service/gpu/gpu_compiler.cc`. One of them tells the old from the
new: before fusion `AddTrackingSuffixToInstructionNames` puts `.0` behind the names of all that
might be fused. `GPU_STEPS` is the table; above it stands what its rows ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.instructions.cpu import by_tuple_index
from hlomem.history.instructions.steps import Step
from hlomem.history.names import split_number
from hlomem.history.rules import CITED, OBSERVED
from hlomem.hlo.opcodes import COLLECTIVES

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

_TRACKED = ".0"
_PART = "get-tuple-element"
_ASYNC = frozenset({"async-start", "async-done"})
_FROM_PROGRAM = frozenset({"parameter", "conditional"})
_WHOLE_KNOWN = frozenset({"parameter", "tuple", "while"})
_MADE_LATE = ("copy-", "fusion-")


def is_tracked(instruction: HloInstruction) -> bool:
    """True if it was there before fusion."""
    return instruction.name.endswith(_TRACKED)


def name_number(instruction: HloInstruction) -> int:
    """The number in its name, the suffix left out."""
    return split_number(instruction.name.removesuffix(_TRACKED))[1]


def _parameter_number(parameter: HloInstruction) -> int:
    return parameter.parameter_number


def _is_of_pass(instruction: HloInstruction, trace: Trace) -> bool:
    """A loop that was rewritten, the new operand of a branch, or a part of a result."""
    if instruction.opcode == "while":
        return trace.module[instruction.called_computations[0]].is_derived
    is_named_so = instruction.name.startswith(f"{instruction.opcode}.")
    is_new = is_tracked(instruction) and is_named_so
    if instruction.opcode == "tuple":
        return is_new and not instruction.is_root
    whole = instruction.operands[0]
    if whole.opcode == "while":
        return is_new or _is_of_pass(whole, trace)
    if whole.opcode == "tuple":
        return _is_of_pass(whole, trace)
    return is_tracked(instruction) and whole.opcode not in _FROM_PROGRAM


def _is_tracked_bitcast(instruction: HloInstruction, _trace: Trace) -> bool:
    return is_tracked(instruction)


def _is_of_collective(instruction: HloInstruction, _trace: Trace) -> bool:
    computation = instruction.async_wrapped_computation
    return computation is not None and computation.root.opcode in COLLECTIVES


def _is_made_late(instruction: HloInstruction, _trace: Trace) -> bool:
    return instruction.name.startswith(_MADE_LATE)


def _whole(instruction: HloInstruction) -> HloInstruction:
    """The tuple a part is of; any other instruction itself."""
    return instruction.operands[0] if instruction.opcode == _PART else instruction


def _is_new_result(instruction: HloInstruction, _trace: Trace) -> bool:
    whole = _whole(instruction)
    return whole.opcode == "tuple" and not is_tracked(whole)


def _is_loop_start(instruction: HloInstruction, trace: Trace) -> bool:
    is_new = _is_new_result(instruction, trace)
    return is_new and any(user.opcode == "while" for user in _whole(instruction).users)


def _is_part_of_loop(instruction: HloInstruction, trace: Trace) -> bool:
    whole = instruction.operands[0]
    is_new = whole.opcode == "parameter" and not is_tracked(instruction)
    return is_new and trace.is_called_by("while")


def _is_of_fusion(instruction: HloInstruction, _trace: Trace) -> bool:
    if is_tracked(instruction):
        return False
    return instruction.opcode == "bitcast" or instruction.operands[0].opcode not in _WHOLE_KNOWN


def _is_of_copy_fusion(instruction: HloInstruction, trace: Trace) -> bool:
    return not is_tracked(instruction) and took_copy_in(instruction.operands[0], trace)


def took_copy_in(instruction: HloInstruction, trace: Trace) -> bool:
    """True if a fusion returns a copy beside what is copied."""
    if instruction.opcode != "fusion":
        return False
    body = instruction.called_computations[0]
    if "copy" not in trace.module.call_graph.bodies[body].opcodes:
        return False
    return any(operand.opcode == "copy" for operand in body.root.operands)


_GPU = "service/gpu/gpu_compiler.cc"
_POSITIONS = "positions of jaxlib 0.11.2"
_H200 = "jaxlib-0.11.2/gpu-h200"

GPU_STEPS = (
    Step(
        "parameters",
        CITED,
        "hlo/ir/hlo_computation.cc: HloComputation::HloComputation",
        f"{_H200}/host_scan",
        opcodes=frozenset({"parameter"}),
        key=_parameter_number,
    ),
    Step(
        "instructions of the program",
        CITED,
        "hlo/ir/hlo_computation.cc: AddInstructionInternal",
        f"{_H200}/cond_simple",
        opcodes=frozenset(),
    ),
    Step(
        "loops and parts that passes made",
        OBSERVED,
        f"{_POSITIONS}; backends/gpu/transforms/add_tracking_suffix_to_instruction_names.cc",
        f"{_H200}/narrow_floats",
        opcodes=frozenset({"while", "tuple", _PART}),
        made=_is_of_pass,
    ),
    Step(
        "bitcasts before fusion",
        OBSERVED,
        f"{_POSITIONS}; backends/gpu/transforms/add_tracking_suffix_to_instruction_names.cc",
        f"{_H200}/narrow_floats",
        opcodes=frozenset({"bitcast"}),
        made=_is_tracked_bitcast,
        key=name_number,
    ),
    Step(
        "transfers from and to the host",
        OBSERVED,
        _POSITIONS,
        f"{_H200}/host_scan",
        opcodes=frozenset({"copy-start", "copy-done", *_ASYNC}),
        precedence=2,
    ),
    Step(
        "parts and bitcasts of fusions",
        CITED,
        f"{_GPU}: RunFusionPasses",
        f"{_H200}/host_moments",
        opcodes=frozenset({"bitcast", _PART}),
        made=_is_of_fusion,
        precedence=3,
    ),
    Step(
        "asynchronous collectives",
        CITED,
        "service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses",
        f"{_H200}/sharded_sorts",
        opcodes=_ASYNC,
        made=_is_of_collective,
        key=name_number,
    ),
    Step(
        "CopyInsertion: starts of loops",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile",
        f"{_H200}/nested_while",
        opcodes=frozenset({"tuple", _PART}),
        made=_is_loop_start,
        precedence=1,
    ),
    Step(
        "CopyInsertion: parts of a loop's parameter",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile",
        f"{_H200}/nested_while",
        opcodes=frozenset({_PART}),
        made=_is_part_of_loop,
        precedence=1,
        key=by_tuple_index,
    ),
    Step(
        "CopyInsertion: results",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile",
        f"{_H200}/cond_simple",
        opcodes=frozenset({"tuple", _PART}),
        made=_is_new_result,
        precedence=2,
    ),
    Step(
        "parts of fusions that took a copy in",
        CITED,
        "backends/gpu/transforms/copy_fusion.cc: DoCopyFusion",
        f"{_H200}/lstm_scan",
        opcodes=frozenset({_PART}),
        made=_is_of_copy_fusion,
        precedence=2,
    ),
    Step(
        "other asynchronous operations",
        OBSERVED,
        _POSITIONS,
        f"{_H200}/lstm_scan",
        opcodes=_ASYNC,
        made=_is_made_late,
        precedence=1,
        key=name_number,
    ),
)
