"""The steps in which the CPU compiler makes the instructions of a computation.

Mirrors the order of passes in `service/cpu/cpu_compiler.cc`, as far as what they make hands values
on. `CPU_STEPS` is the table; above it stands what its rows ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.instructions.steps import Step
from hlomem.history.rules import CITED, OBSERVED

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

_PART = "get-tuple-element"
_REWRITTEN = frozenset({"fusion", "reduce", "custom-call"})
"""Opcodes of instructions whose parts the program did not come with, as a rule."""


def by_tuple_index(part: HloInstruction) -> int:
    """The number of the element it takes."""
    return part.tuple_index


def _is_of_pass(instruction: HloInstruction, trace: Trace) -> bool:
    """A rewritten loop, or a part of its result, of that of a fusion or of inlined code."""
    if instruction.opcode == "while":
        return trace.module[instruction.called_computations[0]].is_derived
    whole = instruction.operands[0]
    if whole.opcode == "while":
        return _is_of_pass(whole, trace)
    return whole.opcode in _REWRITTEN or (whole.opcode == "sort" and _is_inlined(instruction))


def _is_inlined(instruction: HloInstruction) -> bool:
    """True if it came from a function within the function that was compiled."""
    name = instruction.metadata.op_name
    return name.count("jit(") > (2 if "/jit(main)/" in name else 1)


def _is_parallel_call(instruction: HloInstruction, trace: Trace) -> bool:
    return trace.module[instruction.called_computations[0]].is_made_for_call


def _is_call_of_small_loop(instruction: HloInstruction, trace: Trace) -> bool:
    callee = instruction.called_computations[0]
    return callee.root.opcode == "while" and trace.module[callee].is_made_for_call


def _is_loop_start(instruction: HloInstruction, trace: Trace) -> bool:
    return not instruction.is_root and any(
        user.opcode == "while" or (user.opcode == "call" and _is_call_of_small_loop(user, trace))
        for user in instruction.users
    )


def is_part_of_loop(instruction: HloInstruction, trace: Trace) -> bool:
    """True if it takes a part out of the parameter of a loop's body."""
    return instruction.operands[0].opcode == "parameter" and trace.is_loop_body


def is_copied_result(instruction: HloInstruction, trace: Trace) -> bool:
    """True if copy insertion made a new result, of whose copies some or none may be left."""
    if not instruction.is_root:
        return False
    is_entry = trace is trace.module.entry
    return (
        (is_entry and bool(trace.module.call_graph.module.input_output_alias))
        or trace.is_called_by("while", "conditional")
        or any(operand.opcode == "copy" for operand in instruction.operands)
    )


_AFTER_LAYOUTS = "service/cpu/cpu_compiler.cc: RunHloPassesAfterLayoutAssn"
_NEW = "jaxlib-0.12.0.1/cpu"

CPU_STEPS = (
    Step(
        "instructions of the program",
        CITED,
        "hlo/ir/hlo_computation.cc: AddInstructionInternal",
        f"{_NEW}/cond_in_loop",
        opcodes=frozenset(),
    ),
    Step(
        "loops and parts that passes made",
        OBSERVED,
        "positions of jaxlib 0.4.13 to 0.12.0.1",
        f"{_NEW}/dus_loop",
        opcodes=frozenset({"while", _PART}),
        made=_is_of_pass,
    ),
    Step(
        "bitcasts made of reshapes",
        CITED,
        _AFTER_LAYOUTS,
        f"{_NEW}/partitioned_argmax",
        opcodes=frozenset({"bitcast"}),
    ),
    Step(
        "calls of the ParallelTaskAssigner",
        CITED,
        _AFTER_LAYOUTS,
        "jaxlib-0.4.30/cpu/split_bf16",
        opcodes=frozenset({"call"}),
        made=_is_parallel_call,
        precedence=1,
    ),
    Step(
        "CopyInsertion: starts of loops",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile",
        f"{_NEW}/nested_while",
        opcodes=frozenset({"tuple"}),
        made=_is_loop_start,
    ),
    Step(
        "CopyInsertion: parts of a loop's parameter",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile",
        f"{_NEW}/nested_while",
        opcodes=frozenset({_PART}),
        made=is_part_of_loop,
        key=by_tuple_index,
    ),
    Step(
        "CopyInsertion: results",
        CITED,
        "service/copy_insertion.cc: AddCopiesForWhile, AddCopiesForAliasedInputOutputs",
        f"{_NEW}/nested_while",
        opcodes=frozenset({"tuple"}),
        made=is_copied_result,
    ),
    Step(
        "SmallWhileLoopHoistingPass",
        CITED,
        "service/cpu/small_while_loop_hoisting_pass.cc: RunImpl",
        f"{_NEW}/qr_loop",
        opcodes=frozenset({"call"}),
        made=_is_call_of_small_loop,
    ),
)
