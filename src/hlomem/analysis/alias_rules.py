"""The operands an instruction must, or may, write its result into.

Mirrors `hlo/analysis/alias_info.cc` (must) and `HloDataflowAnalysis::CanShareOperandBufferWithUser`
(may). Fused bodies are opened only where their opcodes leave the question open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hlomem.analysis.defined_parts import is_in_place_permute
from hlomem.analysis.fused_bodies import operand_names
from hlomem.analysis.overwriting import (
    BY_BACKEND,
    INSIDE_FUSION,
    NOT_ELEMENTWISE,
    OTHER_SHAPE,
    WHY_NOT,
    Reading,
)
from hlomem.base.named_tuples import NamedTuple
from hlomem.hlo.opcodes import (
    ELEMENTWISE,
    PAYLOAD_OPCODES,
    Opcode,
    opcodes_elementwise,
    opcodes_where,
    rules_by_opcode,
)
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex
from hlomem.machines.alias import DEFAULT_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.fused_bodies import FusedBodies, Row
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.traits import InPlace
    from hlomem.machines.alias import AliasRules


class InPlacePair(NamedTuple):
    """A part of an operand and the part of the result that is written over it."""

    operand_number: int
    operand_index: ShapeIndex
    output_index: ShapeIndex


_DECLARATION = "output_to_operand_aliasing"
_FIRST_OPERAND = (InPlacePair(0, ROOT_INDEX, ROOT_INDEX),)
_SECOND_OPERAND = (InPlacePair(1, ROOT_INDEX, ROOT_INDEX),)

_ALWAYS_ELEMENTWISE = opcodes_elementwise("yes", "no array read")
_MAY_BE_ELEMENTWISE = _ALWAYS_ELEMENTWISE | opcodes_elementwise("by width", "by dimensions")
_NEED_READING = opcodes_elementwise("by body", "by dimensions", "by width")
"""Opcodes that do not tell by themselves whether an instruction is elementwise."""
_ELEMENTWISE_BODY = _ALWAYS_ELEMENTWISE | PAYLOAD_OPCODES | frozenset[Opcode]({"tuple"})
"""A body of these alone is elementwise in all its parameters."""


# Must.


def in_place_pairs(instruction: HloInstruction, bodies: FusedBodies) -> Sequence[InPlacePair]:
    """The in-place pairs of an instruction (`AliasInfo::GetInPlaceInputOutputPairs`)."""
    if instruction.opcode == "fusion":
        return _fusion(instruction, bodies)
    rule = _IN_PLACE.get(instruction.opcode)
    return rule(instruction) if rule is not None else ()


def _first_operand(_: HloInstruction) -> Sequence[InPlacePair]:
    return _FIRST_OPERAND


def _second_operand(_: HloInstruction) -> Sequence[InPlacePair]:
    return _SECOND_OPERAND


def _operands_to_elements(count: int) -> Sequence[InPlacePair]:
    if count == 1:
        return _FIRST_OPERAND
    return [InPlacePair(i, ROOT_INDEX, ShapeIndex((i,))) for i in range(count)]


def _updated_operands(instruction: HloInstruction) -> Sequence[InPlacePair]:
    return _operands_to_elements(len(instruction.operands) // 2)


def _all_operands(instruction: HloInstruction) -> Sequence[InPlacePair]:
    return _operands_to_elements(len(instruction.operands))


def _declared(instruction: HloInstruction) -> list[InPlacePair]:
    return [
        InPlacePair(alias.operand_number, alias.operand_index, alias.output_index)
        for alias in instruction.output_to_operand_aliasing
    ]


def _async_start(instruction: HloInstruction) -> list[InPlacePair]:
    """The declared pairs of operands and results that are present."""
    number_of = instruction.shape.parts.number_of
    return [
        pair
        for pair in _declared(instruction)
        if pair.operand_number < len(instruction.operands) and pair.output_index in number_of
    ]


def _async_done(instruction: HloInstruction) -> list[InPlacePair]:
    """The pairs its start declares, whichever operation of the chain binds the operand."""
    start = instruction.async_start
    return [
        InPlacePair(
            0,
            ShapeIndex((0, pair.operand_number, *pair.operand_index)),
            ShapeIndex(pair.output_index[1:]),
        )
        for pair in (_declared(start) if start is not None else ())
        if pair.output_index[:1] == (1,)
    ]


def _permuted_slices(instruction: HloInstruction) -> Sequence[InPlacePair]:
    if not is_in_place_permute(instruction):
        return ()
    output = (1,) if instruction.opcode == "collective-permute-start" else ()
    destination = instruction.operands[1].shape
    pairs = [InPlacePair(1, ROOT_INDEX, ShapeIndex(output))]
    pairs += [
        InPlacePair(1, ShapeIndex((i,)), ShapeIndex((*output, i)))
        for i in range(len(destination.elements))
    ]
    return pairs


def _fusion(fusion: HloInstruction, bodies: FusedBodies) -> Sequence[InPlacePair]:
    may_write = _may_write_in_place(bodies[fusion.called_computations[0]].opcodes)
    if not may_write and not fusion.may_have(_DECLARATION):
        return ()  # as most often
    pairs = _fusion_body_pairs(fusion, bodies) if may_write else []
    if _may_declare_aliasing(fusion):
        pairs += _declared(fusion)
    return pairs


@lru_cache(maxsize=4096)
def _may_write_in_place(opcodes: frozenset[Opcode]) -> bool:
    return not opcodes.isdisjoint(MAY_WRITE_IN_PLACE)


def _may_declare_aliasing(instruction: HloInstruction) -> bool:
    """Whether it is worth reading the attributes to see what they declare."""
    return instruction.may_have(_DECLARATION)


def _fusion_body_pairs(fusion: HloInstruction, bodies: FusedBodies) -> list[InPlacePair]:
    """Pairs that follow from the body of a fusion.

    A part of the result that comes from an in-place instruction, whose input in turn is a
    parameter of the fusion, is written over that parameter.
    """
    pairs: list[InPlacePair] = []
    root = fusion.called_computations[0].root
    for output_index, _ in fusion.shape.leaves():
        source, source_index = _follow_indirections(root, output_index)
        if source.opcode == "fusion":
            source_pairs: Sequence[InPlacePair] = _fusion_body_pairs(source, bodies)
        else:
            source_pairs = in_place_pairs(source, bodies)
        for pair in source_pairs:
            if pair.output_index != source_index:
                continue
            written, index = _follow_indirections(
                source.operands[pair.operand_number], pair.operand_index
            )
            if written.opcode == "fusion":
                written, index = _through_nested_fusion(written, index, bodies)
            if written.opcode == "parameter":
                pairs.append(InPlacePair(written.parameter_number, index, output_index))
    return pairs


def _through_nested_fusion(
    fusion: HloInstruction, index: ShapeIndex, bodies: FusedBodies
) -> tuple[HloInstruction, ShapeIndex]:
    for pair in in_place_pairs(fusion, bodies):
        if pair.output_index == index:
            return _follow_indirections(fusion.operands[pair.operand_number], pair.operand_index)
    return fusion, index


def _follow_indirections(
    instruction: HloInstruction, index: ShapeIndex
) -> tuple[HloInstruction, ShapeIndex]:
    """The origin of a part, past tuples, then get-tuple-elements, then bitcasts."""
    path = tuple(index)
    while instruction.opcode == "tuple" and path:
        instruction, path = instruction.operands[path[0]], path[1:]
    while instruction.opcode == "get-tuple-element":
        instruction, path = instruction.operands[0], (instruction.tuple_index, *path)
    while not path and instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction, ShapeIndex(path)


_PAIRS_OF_WRITING: Mapping[InPlace, Callable[[HloInstruction], Sequence[InPlacePair]]] = {
    "all operands": _all_operands,
    "async done": _async_done,
    "async start": _async_start,
    "declared": _declared,
    "first operand": _first_operand,
    "permuted slices": _permuted_slices,
    "second operand": _second_operand,
    "updated operands": _updated_operands,
}
_IN_PLACE = rules_by_opcode(lambda traits: traits.writes, _PAIRS_OF_WRITING)
MAY_WRITE_IN_PLACE = opcodes_where(lambda traits: traits.writes)
"""Opcodes of which `in_place_pairs` may find pairs."""


# May.

_LOOP_FUSION = ", kind=kLoop,"


def may_share_with_operand(user: HloInstruction, rules: AliasRules) -> bool:
    """Whether `can_share_operand_buffer` can be true for a user at all."""
    opcode = user.opcode
    if opcode in rules.opcodes:
        return True
    if opcode == "custom-call":
        return _may_declare_aliasing(user)
    return opcode in _SHARING


def can_share_operand_buffer(
    dataflow: Dataflow,
    operand: HloInstruction,
    operand_index: ShapeIndex,
    user: HloInstruction,
    user_index: ShapeIndex,
    rules: AliasRules = DEFAULT_RULES,
) -> bool:
    """Whether a user may write its result over an operand that it is the last to read.

    `HloDataflowAnalysis::CanShareOperandBufferWithUser`, less the rule for calls, which define no
    value that could share.
    """
    if operand.opcode == "constant":
        return False
    has_same_shape = operand.shape.subshape(operand_index) == user.shape.subshape(user_index)
    if has_same_shape and _is_in_place(dataflow, operand, operand_index, user, user_index):
        return True
    return not why_not_overwrite(
        operand, user, user_index, has_same_shape, dataflow.call_graph.bodies, rules
    )


def why_not_overwrite(
    operand: HloInstruction,
    user: HloInstruction,
    user_index: ShapeIndex,
    has_same_shape: bool,
    bodies: FusedBodies,
    rules: AliasRules = DEFAULT_RULES,
) -> str:
    """Why a user may not write a part of its result over an operand; empty where it may.

    It need not; the pairs that must be in place are `in_place_pairs`.
    """
    if rules.may_alias is not None:
        hint = rules.may_alias(operand, user, user_index)
        if hint is not None:
            return "" if hint else BY_BACKEND
    if not has_same_shape:
        return OTHER_SHAPE
    numbers = [i for i, other in enumerate(user.operands) if other is operand]
    if user.opcode == "fusion":
        return "" if _fusion_may_share(user, numbers[0], bodies) else INSIDE_FUSION
    rule = WHY_NOT.get(user.opcode)
    if rule is not None:
        return rule(Reading(numbers, len(user.operands), user_index, len(operand.users)))
    return "" if is_elementwise_on(user, numbers[0]) else NOT_ELEMENTWISE


def why_not_by_opcode(opcode: Opcode, reading: Reading, rules: AliasRules) -> str | None:
    """The same as far as an opcode alone tells; None where that takes its attributes or body."""
    if opcode in rules.opcodes:
        return None
    rule = WHY_NOT.get(opcode)
    if rule is not None:
        return rule(reading)
    if opcode in _NEED_READING or opcode in MAY_WRITE_IN_PLACE:
        return None
    return "" if opcode in _MAY_BE_ELEMENTWISE else NOT_ELEMENTWISE


def _is_in_place(
    dataflow: Dataflow,
    operand: HloInstruction,
    operand_index: ShapeIndex,
    user: HloInstruction,
    user_index: ShapeIndex,
) -> bool:
    """Whether a user must write this part of its result over the operand."""
    values = dataflow.value_set(operand, operand_index)
    for pair in in_place_pairs(user, dataflow.call_graph.bodies):
        if pair.output_index == user_index:
            written = dataflow.value_set(user.operands[pair.operand_number], pair.operand_index)
            if any(value in values for value in written):
                return True
    return False


def _fusion_may_share(user: HloInstruction, number: int, bodies: FusedBodies) -> bool:
    kind = _fusion_kind(user)
    body = user.called_computations[0]
    if kind in ("kLoop", "kInput"):
        if bodies[body].opcodes <= _ELEMENTWISE_BODY:
            return True
        rows = bodies.rows(body)
        if rows is not None and _NEED_READING.isdisjoint(bodies[body].opcodes):
            return row_feeds_only_elementwise(rows, str(number))
        return feeds_only_elementwise(_parameter_of(user, number))
    if kind == "kOutput" and body.root.opcode == "add":
        return _adds_to_product(user, number)
    return is_elementwise_on(user, number)


def _parameter_of(fusion: HloInstruction, number: int) -> HloInstruction:
    """The parameter inside a fusion for an operand, which nobody checked that it takes."""
    body = fusion.called_computations[0]
    if number >= len(body.parameters):
        count = len(body.parameters)
        problem = f"`{body.name}` takes {count} operands, not {len(fusion.operands)}"
        raise fusion.error(problem)
    return body.parameters[number]


def _fusion_kind(fusion: HloInstruction) -> str | None:
    """The kind of a fusion; XLA prints it first, so that the rest need not be read."""
    first = fusion.attribute_text[: len(_LOOP_FUSION)]
    return "kLoop" if first == _LOOP_FUSION else fusion.attributes.get("kind")


def feeds_only_elementwise(parameter: HloInstruction) -> bool:
    """Whether everything that depends on a fused parameter is elementwise in it, or a tuple."""
    seen = {parameter}
    pending = [parameter]
    while pending:
        instruction = pending.pop()
        users = instruction.users
        if not all(_is_elementwise_or_tuple(user, instruction) for user in users):
            return False
        pending += [user for user in users if user not in seen]
        seen.update(users)
    return True


def _is_elementwise_or_tuple(user: HloInstruction, operand: HloInstruction) -> bool:
    numbers = [number for number, other in enumerate(user.operands) if other is operand]
    return user.opcode == "tuple" or all(is_elementwise_on(user, number) for number in numbers)


def row_feeds_only_elementwise(rows: list[Row], number: str) -> bool:
    """`feeds_only_elementwise` of a body that is still text; operands stand before users."""
    reached: set[str] = set()
    for name, opcode, inner in rows:
        if opcode == "parameter":
            if inner == number:
                reached.add(name)
        elif reached and opcode not in PAYLOAD_OPCODES:
            operands = operand_names(inner)
            if reached.isdisjoint(operands):
                continue
            if not _row_is_elementwise(opcode, reached.isdisjoint(operands[1:])):
                return False
            reached.add(name)
    return True


def _row_is_elementwise(opcode: Opcode, only_first_is_reached: bool) -> bool:
    """Whether an instruction is elementwise in the operands that are reached, or a tuple."""
    if opcode == "dynamic-update-slice":
        return only_first_is_reached
    return opcode == "tuple" or opcode in _MAY_BE_ELEMENTWISE


def _is_product(opcode: Opcode) -> bool:
    return opcode == "dot" or opcode == "convolution"


def _adds_to_product(fusion: HloInstruction, number: int) -> bool:
    """Whether the body adds a dot or convolution to the parameter, its only use."""
    body = fusion.called_computations[0]
    operands = body.root.operands
    products = [i for i, operand in enumerate(operands) if _is_product(operand.opcode)]
    if not products:
        return False
    other = 1 - products[0]
    parameter = _parameter_of(fusion, number)
    uses = [
        (user, i)
        for user in parameter.users
        for i, operand in enumerate(user.operands)
        if operand is parameter
    ]
    return uses == [(body.root, other)]


_SHARING = MAY_WRITE_IN_PLACE | frozenset(WHY_NOT) | _MAY_BE_ELEMENTWISE


def is_elementwise(instruction: HloInstruction) -> bool:
    """Whether element i of the result needs only element i of every operand."""
    opcode = instruction.opcode
    return opcode != "dynamic-update-slice" and is_elementwise_on(instruction, 0)


def is_elementwise_on(instruction: HloInstruction, operand_number: int) -> bool:
    """Whether element i of the result needs only element i of an operand."""
    opcode = instruction.opcode
    if opcode == "fusion":
        return _fusion_is_elementwise_on(instruction, operand_number)
    if opcode == "dynamic-update-slice":
        return operand_number == 0
    if opcode == "bitcast-convert":
        return _storage_bits(instruction) == _storage_bits(instruction.operands[0])
    if opcode == "map":
        dimensions = instruction.integers("dimensions")
        return not dimensions or dimensions == tuple(range(instruction.shape.rank))
    return opcode in _MAY_BE_ELEMENTWISE


def _fusion_is_elementwise_on(fusion: HloInstruction, operand_number: int) -> bool:
    """`HloFusionInstruction::IsElementwiseImpl`: all between the parameter and the root is."""
    parameter = _parameter_of(fusion, operand_number)
    seen = {parameter}
    pending = [parameter]
    while pending:
        instruction = pending.pop()
        for user in instruction.users:
            if user in seen:
                continue
            numbers = [i for i, operand in enumerate(user.operands) if operand is instruction]
            if user.opcode not in ELEMENTWISE and not all(
                is_elementwise_on(user, number) for number in numbers
            ):
                return False
            seen.add(user)
            pending.append(user)
    return True


def _storage_bits(instruction: HloInstruction) -> int:
    return instruction.shape.element_type.byte_width * 8
