"""`slice-start(x)` is short for an async-start that calls a computation with one slice in it.

In: an instruction as the sugared text has it. Out: the same instruction as an async operation, with
the computation it wraps. Texts of `HloModule::ToString` (what `compiled.as_text()` gives) are
sugared, `--xla_dump_hlo_as_text` files are not. The printer puts the sugar back.

Mirrors `HloParserImpl::ParseOpcode` and `CreateAsyncWrappedComputation`.
"""

from __future__ import annotations

from hlomem.hlo.ir import MAIN_THREAD, HloComputation, HloInstruction
from hlomem.hlo.opcodes import KNOWN_OPCODES, Opcode, as_opcode

ASYNC_THREAD = "async_execution_thread"

_STAGES = ("-start", "-update", "-done")
# Attributes of the async operation; XLA gives the wrapped one a copy of the last three.
_OUTER = frozenset({ASYNC_THREAD, "sharding", "control-predecessors", "statistics"})
_COPIED = frozenset({"metadata", "backend_config", "frontend_attributes", "origin"})


def is_sugared(opcode: str) -> bool:
    """Whether an opcode is that of a wrapped instruction, followed by a stage."""
    if opcode in KNOWN_OPCODES:
        return False
    return any(
        opcode.endswith(stage) and opcode.removesuffix(stage) in KNOWN_OPCODES for stage in _STAGES
    )


def desugar(instruction: HloInstruction) -> HloInstruction | None:
    """Make an async operation of a sugared instruction; returns the computation a start wraps."""
    stage = next(stage for stage in _STAGES if instruction.opcode.endswith(stage))
    wrapped_opcode = as_opcode(instruction.opcode.removesuffix(stage))
    instruction.opcode = as_opcode(f"async{stage}")
    if stage != "-start":
        return None
    attributes = instruction.attributes
    computation = _wrapping_computation(instruction, attributes.get(ASYNC_THREAD, ""))
    wrapped = _wrapped_instruction(instruction, wrapped_opcode, computation)
    outer = {name: text for name, text in attributes.items() if name in _OUTER | _COPIED}
    instruction.set_attributes({"calls": computation.name, **outer})
    instruction.called_computations = (computation,)
    return wrapped


def _wrapping_computation(instruction: HloInstruction, thread: str) -> HloComputation:
    caller = instruction.parent
    module = caller.module
    name = f"{instruction.name}.async_wrapped"
    while name in module.computation_by_name:
        name += ".1"
    computation = HloComputation(
        module,
        name,
        caller.index,
        is_entry=False,
        execution_thread=thread.strip('"') or MAIN_THREAD,
    )
    module.computations.insert(module.computations.index(caller), computation)
    module.computation_by_name[name] = computation
    return computation


def _wrapped_instruction(
    start: HloInstruction, opcode: Opcode, computation: HloComputation
) -> HloInstruction:
    parameters = [
        HloInstruction(
            f"{start.name}.param_{number}",
            operand.shape,
            "parameter",
            (),
            str(number),
            {},
            computation,
            number,
        )
        for number, operand in enumerate(start.operands)
    ]
    attributes = {name: text for name, text in start.attributes.items() if name not in _OUTER}
    result = start.shape.elements[1] if len(start.shape.elements) > 1 else start.shape
    root = HloInstruction(
        f"{start.name}.wrapped",
        result,
        opcode,
        tuple(parameters),
        "",
        attributes,
        computation,
        len(parameters),
    )
    computation.fill([*parameters, root], parameters, root)
    return root
