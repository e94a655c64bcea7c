"""Checks of shapes that planning relies on, outside fusions.

Mirrors the part of `service/hlo_verifier.cc` about forwarding: tuples, loops, conditionals, calls,
asynchronous pairs, and the header's aliases. Errors point at the first wrong instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError, UnsupportedError
from hlomem.hlo.opcodes import RUN_IN_PLACE, rules_by_opcode
from hlomem.hlo.schedule import running_computations
from hlomem.hlo.shape import UNBOUNDED, Shape, ShapeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.traits import Forwarding

MAX_TUPLE_DEPTH = 100
"""XLA accepts 8192 levels, but dumps of n levels have n³ characters."""

_SHOWN = 60


class _Disagreement(Exception):  # noqa: N818 - becomes an error once it has a position
    """A mismatch between an instruction and its operands, callees or result."""


def verify_module(module: HloModule) -> None:
    """Raise `ParseError` unless shapes agree, `UnsupportedError` for too deep tuples."""
    verify_computations(module.outer_computations)
    _verify_contexts(module)
    _verify_aliases(module)


def verify_computations(computations: Iterable[HloComputation]) -> None:
    """`verify_module` for some computations."""
    fine = set[int]()  # ids of valid shapes; shapes of equal text are one object
    find_check = _CHECKS.get
    for computation in computations:
        for instruction in computation.instructions:
            check = find_check(instruction.opcode)
            if check is not None:
                try:
                    check(instruction)
                except _Disagreement as problem:
                    raise instruction.error(str(problem)) from None
            shape = instruction.shape
            if id(shape) not in fine:
                _refuse_shape(instruction)
                fine.add(id(shape))


def _refuse_shape(instruction: HloInstruction) -> None:
    """Raise for a shape that is nested too deep or unbounded."""
    level, problem = [instruction.shape], ""
    for _ in range(MAX_TUPLE_DEPTH + 1):
        if any(UNBOUNDED in shape.dimensions for shape in level if shape.dynamic):
            problem = "a shape with an unbounded dimension has no size"
            break
        level = [element for shape in level for element in shape.elements]
        if not level:
            return
    problem = problem or f"a shape nested deeper than {MAX_TUPLE_DEPTH} levels is not planned"
    raise instruction.error(problem, kind=UnsupportedError)


def _verify_contexts(module: HloModule) -> None:
    """None is scheduled and embedded (`GatherComputationsByAllocationType`)."""
    in_flow = dict.fromkeys(running_computations(module))
    outside = set(module.outer_computations)
    embedding = [
        instruction
        for computation in in_flow
        for instruction in computation.instructions
        if instruction.called_computations and instruction.opcode not in RUN_IN_PLACE
    ]
    seen: set[HloComputation] = set()
    while embedding:
        instruction = embedding.pop()
        for callee in instruction.called_computations:
            if callee in in_flow:
                problem = f"`{callee.name}` runs both inside this and in the flow of the program"
                raise instruction.error(problem)
            if callee not in seen and callee in outside:
                seen.add(callee)
                embedding += [call for call in callee.instructions if call.called_computations]


def _verify_aliases(module: HloModule) -> None:
    """The header's aliases and donors name existing parts."""
    for what, shape, index in _aliased_parts(module):
        if shape is None or shape.optional_subshape(index) is None:
            problem = f"the header aliases or donates {what} {index}, which is not there"
            raise ParseError(module.source, module.source.first_line, problem)


def _aliased_parts(module: HloModule) -> Iterator[tuple[str, Shape | None, ShapeIndex]]:
    parameters = module.entry.parameters

    def shape_of(number: int) -> Shape | None:
        return parameters[number].shape if number < len(parameters) else None

    for alias in module.input_output_alias:
        yield "output", module.entry.root.shape, alias.output_index
        number = alias.parameter_number
        yield f"parameter {number}", shape_of(number), alias.parameter_index
    for number, index in module.buffer_donor:
        yield f"parameter {number}", shape_of(number), index


# --- one function per kind of instruction ------------------------------------------------------


def _require(is_right: bool, problem: str) -> None:
    if not is_right:
        raise _Disagreement(problem)


def _agree(one: Shape, other: Shape, names: tuple[str, str]) -> None:
    """Raise unless two shapes differ at most in layouts (`ShapeUtil::Compatible`)."""
    if one is other or one.text_without_layout == other.text_without_layout:
        return
    first, second = (shape.text_without_layout[:_SHOWN] for shape in (one, other))
    raise _Disagreement(f"{names[0]} has shape `{first}`, {names[1]} `{second}`")


def _has_tree_of(instruction: HloInstruction, shape: Shape, name: str) -> None:
    """Raise unless the result has the same tuple structure as `shape`."""
    pairs = [(instruction.shape, shape)]
    while pairs:
        one, other = pairs.pop()
        if one is other or not (one.is_tuple or other.is_tuple):
            continue
        if one.is_tuple != other.is_tuple or len(one.elements) != len(other.elements):
            raise _Disagreement(f"the result does not have the tuples of {name}")
        pairs += zip(one.elements, other.elements, strict=True)


def _verify_forwarded(instruction: HloInstruction) -> None:
    _has_tree_of(instruction, instruction.operands[0].shape, "its operand")


def _verify_copy(instruction: HloInstruction) -> None:
    if instruction.shape.is_tuple or instruction.operands[0].shape.is_tuple:
        _verify_forwarded(instruction)


def _verify_tuple(instruction: HloInstruction) -> None:
    shape, operands = instruction.shape, instruction.operands
    count = len(shape.elements) if shape.is_tuple else -1
    _require(count == len(operands), f"the result is not a tuple of {len(operands)} elements")
    for element, operand in zip(shape.elements, operands, strict=True):
        if element is not operand.shape:
            _agree(element, operand.shape, ("an element", f"`{operand.name}`"))


def _verify_element(instruction: HloInstruction) -> None:
    element = instruction.operands[0].shape.elements[instruction.tuple_index]
    if element is not instruction.shape:
        _agree(instruction.shape, element, ("the result", "the element"))


def _verify_call(instruction: HloInstruction) -> None:
    _require(len(instruction.called_computations) == 1, "a call calls one computation")
    callee = instruction.called_computations[0]
    _verify_arguments(instruction.operands, callee)
    _agree(instruction.shape, callee.root.shape, ("the result", f"the root of `{callee.name}`"))


def _verify_arguments(operands: tuple[HloInstruction, ...], callee: HloComputation) -> None:
    count = len(callee.parameters)
    _require(len(operands) == count, f"`{callee.name}` takes {count} operands, not {len(operands)}")
    for operand, parameter in zip(operands, callee.parameters, strict=True):
        names = f"`{operand.name}`", f"parameter `{parameter.name}` of `{callee.name}`"
        _agree(operand.shape, parameter.shape, names)


def _verify_while(instruction: HloInstruction) -> None:
    _require(len(instruction.called_computations) == 2, "a loop has one body and one condition")
    body, condition = instruction.called_computations
    _verify_arguments(instruction.operands, body)
    _verify_arguments(instruction.operands, condition)
    _agree(instruction.shape, body.root.shape, ("the result", f"the root of `{body.name}`"))
    _agree(instruction.shape, instruction.operands[0].shape, ("the result", "the operand"))


def _verify_conditional(instruction: HloInstruction) -> None:
    branches, operands = instruction.called_computations, instruction.operands
    count = len(branches) + 1
    _require(len(operands) == count, f"expected {count} operands: one, and one for each branch")
    for branch, operand in zip(branches, operands[1:], strict=True):
        _verify_arguments((operand,), branch)
        _agree(instruction.shape, branch.root.shape, ("the result", f"the root of `{branch.name}`"))


def _has_elements(shape: Shape, count: int, name: str) -> None:
    is_right = shape.is_tuple and len(shape.elements) >= count
    _require(is_right, f"{name} is not a tuple of {count} elements")


def _verify_copy_start(instruction: HloInstruction) -> None:
    _has_elements(instruction.shape, 3, "the result")
    for part in (*instruction.shape.elements, instruction.operands[0].shape):
        _require(not part.is_tuple, "a copy-start copies one array")


def _verify_copy_done(instruction: HloInstruction) -> None:
    _has_elements(instruction.operands[0].shape, 2, "the operand")
    _require(not instruction.shape.is_tuple, "the result is a tuple")


def _verify_send(instruction: HloInstruction) -> None:
    _has_elements(instruction.shape, 3, "the result")
    sent = instruction.operands[0]
    _agree(instruction.shape.elements[0], sent.shape, ("the first element", f"`{sent.name}`"))


def _verify_recv_done(instruction: HloInstruction) -> None:
    _has_elements(instruction.shape, 2, "the result")
    _has_elements(instruction.operands[0].shape, 1, "the operand")
    received = instruction.operands[0].shape.elements[0]
    _agree(instruction.shape.elements[0], received, ("the first element", "the operand's"))


def _verify_gathering_start(instruction: HloInstruction) -> None:
    """The first element holds the operands, the second the results; several are tuples."""
    _require(bool(instruction.operands), "an operand is missing")
    _has_elements(instruction.shape, 2, "the result")
    count = len(instruction.operands)
    for element in instruction.shape.elements[:2]:
        if count > 1:
            _has_elements(element, count, "an element of the result")


def _verify_gathering_done(instruction: HloInstruction) -> None:
    _has_elements(instruction.operands[0].shape, 2, "the operand")
    _has_tree_of(instruction, instruction.operands[0].shape.elements[1], "the started operation")


_CHECK_OF_FORWARDING: Mapping[Forwarding, Callable[[HloInstruction], None]] = {
    "below top": _verify_copy,
    "branch results": _verify_conditional,
    "callee result": _verify_call,
    "copy done": _verify_copy_done,
    "copy start": _verify_copy_start,
    "element": _verify_element,
    "elements": _verify_tuple,
    "gather start": _verify_gathering_start,
    "loop": _verify_while,
    "permute start": _verify_gathering_start,
    "received element": _verify_recv_done,
    "second element": _verify_gathering_done,
    "sent operand": _verify_send,
    "whole operand": _verify_forwarded,
}
_CHECKS = rules_by_opcode(lambda traits: traits.forwards, _CHECK_OF_FORWARDING)
"""Asynchronous operations are checked by dataflow analysis, parameters with their callers."""
