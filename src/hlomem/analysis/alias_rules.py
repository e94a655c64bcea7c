"""The operands an instruction must, or may, write its result into.

Mirrors `hlo/analysis/alias_info.cc` (must) and `HloDataflowAnalysis::CanShareOperandBufferWithUser`
(may). Fused bodies are opened only where their opcodes leave the question open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.defined_parts import is_in_place_permute
from hlomem.analysis.fused_bodies import FusedBodies, Row, operand_names
from hlomem.analysis.machine_rules import DEFAULT_RULES, AliasRules
from hlomem.analysis.overwriting import (
    BY_BACKEND,
    INSIDE_FUSION,
    NOT_ELEMENTWISE,
    OTHER_SHAPE,
    WHY_NOT,
    Reading,
)
from hlomem.hlo.opcodes import (
    ELEMENTWISE,
    PAYLOAD_OPCODES,
    Opcode,
    opcodes_elementwise,
    opcodes_where,
    rules_by_opcode,
)
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.analysis.dataflow import Dataflow
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.traits import InPlace


class InPlacePair(Struct, frozen=True):
    """A part of an operand and the part of the result that overwrites it."""

    operand_number: int
    operand_index: ShapeIndex
    output_index: ShapeIndex


_DECLARATION = "output_to_operand_aliasing"
_FIRST_OPERAND = (InPlacePair(0, ROOT_INDEX, ROOT_INDEX),)
_SECOND_OPERAND = (InPlacePair(1, ROOT_INDEX, ROOT_INDEX),)

_ALWAYS_ELEMENTWISE = opcodes_elementwise("yes", "no array read")
_MAY_BE_ELEMENTWISE = _ALWAYS_ELEMENTWISE | opcodes_elementwise("by width", "by dimensions")
_NEED_READING = opcodes_elementwise("by body", "by dimensions", "by width")
"""Opcodes that are elementwise or not depending on the instruction."""
_ELEMENTWISE_BODY = _ALWAYS_ELEMENTWISE | PAYLOAD_OPCODES | frozenset[Opcode]({"tuple"})
"""A body of these opcodes only is elementwise in all its parameters."""


# Must.


def in_place_pairs(instruction: HloInstruction, bodies: FusedBodies) -> Sequence[InPlacePair]:
    """The in-place pairs of an instruction (`AliasInfo::GetInPlaceInputOutputPairs`)."""
    if instruction.opcode == "fusion":
        return _fusion(instruction, bodies)
    rule = _IN_PLACE.get(instruction.opcode)
    return rule(instruction) if rule is not None else ()


def _operands_to_elements(count: int) -> Sequence[InPlacePair]:
    if count == 1:
        return _FIRST_OPERAND
    return [InPlacePair(i, ROOT_INDEX, ShapeIndex((i,))) for i in range(count)]


def _declared(instruction: HloInstruction) -> list[InPlacePair]:
    return [
        InPlacePair(alias.operand_number, alias.operand_index, alias.output_index)
        for alias in instruction.output_to_operand_aliasing
    ]


def _async_start(instruction: HloInstruction) -> list[InPlacePair]:
    """The declared pairs whose operands and results exist."""
    number_of = instruction.shape.parts.number_of
    return [
        pair
        for pair in _declared(instruction)
        if pair.operand_number < len(instruction.operands) and pair.output_index in number_of
    ]


def _async_done(instruction: HloInstruction) -> list[InPlacePair]:
    """The pairs that the start declares."""
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
    pairs = _fusion_body_pairs(fusion, bodies) if may_write else []
    return pairs + _declared(fusion) if fusion.may_have(_DECLARATION) else pairs


@lru_cache(maxsize=4096)
def _may_write_in_place(opcodes: frozenset[Opcode]) -> bool:
    return not opcodes.isdisjoint(MAY_WRITE_IN_PLACE)


def _fusion_body_pairs(fusion: HloInstruction, bodies: FusedBodies) -> list[InPlacePair]:
    """The pairs of in-place instructions between a fusion's parameters and its results."""
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
    """The origin of a part, through tuples, then get-tuple-elements, then bitcasts."""
    path = tuple(index)
    while instruction.opcode == "tuple" and path:
        instruction, path = instruction.operands[path[0]], path[1:]
    while instruction.opcode == "get-tuple-element":
        instruction, path = instruction.operands[0], (instruction.tuple_index, *path)
    while not path and instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction, ShapeIndex(path)


_PAIRS_OF_WRITING: Mapping[InPlace, Callable[[HloInstruction], Sequence[InPlacePair]]] = {
    "all operands": lambda instruction: _operands_to_elements(len(instruction.operands)),
    "async done": _async_done,
    "async start": _async_start,
    "declared": _declared,
    "first operand": lambda _: _FIRST_OPERAND,
    "permuted slices": _permuted_slices,
    "second operand": lambda _: _SECOND_OPERAND,
    "updated operands": lambda instruction: _operands_to_elements(len(instruction.operands) // 2),
}
_IN_PLACE = rules_by_opcode(lambda traits: traits.writes, _PAIRS_OF_WRITING)
MAY_WRITE_IN_PLACE = opcodes_where(lambda traits: traits.writes)


# May.

_LOOP_FUSION = ", kind=kLoop,"


def may_share_with_operand(user: HloInstruction, rules: AliasRules) -> bool:
    """Whether `can_share_operand_buffer` can be true for a user at all."""
    opcode = user.opcode
    if opcode in rules.opcodes:
        return True
    if opcode == "custom-call":
        return user.may_have(_DECLARATION)
    return opcode in _SHARING


def can_share_operand_buffer(
    dataflow: Dataflow,
    operand: HloInstruction,
    operand_index: ShapeIndex,
    user: HloInstruction,
    user_index: ShapeIndex,
    rules: AliasRules = DEFAULT_RULES,
) -> bool:
    """Whether a user may overwrite an operand that it is the last to read.

    `HloDataflowAnalysis::CanShareOperandBufferWithUser` without its rule for calls, which define
    no values.
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
    """Why a part of a user's result may not overwrite an operand; empty if it may."""
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
    """`why_not_overwrite` by the opcode alone; None if it depends on attributes or a body."""
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
    """Whether this part of a user's result must overwrite the operand."""
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
        if "fusion" in bodies[body].opcodes:  # which may be another's in a copy
            return feeds_only_elementwise(_parameter_of(user, number))
        return body.ask_once(
            ("feeds only elementwise", number),
            lambda: feeds_only_elementwise(_parameter_of(user, number)),
        )
    if kind == "kOutput" and body.root.opcode == "add":
        return _adds_to_product(user, number)
    return is_elementwise_on(user, number)


def _parameter_of(fusion: HloInstruction, number: int) -> HloInstruction:
    """The fused parameter of an operand; parameter counts of fusions are not verified before."""
    body = fusion.called_computations[0]
    if number >= (count := len(body.parameters)):
        raise fusion.error(f"`{body.name}` takes {count} operands, not {len(fusion.operands)}")
    return body.parameters[number]


def _fusion_kind(fusion: HloInstruction) -> str | None:
    """The kind of a fusion; XLA prints it first, which spares parsing the other attributes."""
    first = fusion.attribute_text[: len(_LOOP_FUSION)]
    return "kLoop" if first == _LOOP_FUSION else fusion.attributes.get("kind")


def feeds_only_elementwise(parameter: HloInstruction) -> bool:
    """Whether all dependents of a fused parameter are tuples or elementwise in it."""
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
    """`feeds_only_elementwise` for a body that is not parsed; operands precede users."""
    reached: set[str] = set()
    for name, opcode, inner in rows:
        if opcode == "parameter":
            if inner == number:
                reached.add(name)
        elif reached and opcode not in PAYLOAD_OPCODES:
            operands = operand_names(inner)
            if reached.isdisjoint(operands):
                continue
            if opcode == "dynamic-update-slice":
                if not reached.isdisjoint(operands[1:]):
                    return False
            elif opcode != "tuple" and opcode not in _MAY_BE_ELEMENTWISE:
                return False
            reached.add(name)
    return True


def _adds_to_product(fusion: HloInstruction, number: int) -> bool:
    """Whether the parameter's only use is the addition to a dot or convolution at the root."""
    body = fusion.called_computations[0]
    products = [
        i
        for i, operand in enumerate(body.root.operands)
        if operand.opcode == "dot" or operand.opcode == "convolution"
    ]
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
    """Whether element i of the result depends only on element i of every operand."""
    return instruction.opcode != "dynamic-update-slice" and is_elementwise_on(instruction, 0)


def is_elementwise_on(instruction: HloInstruction, operand_number: int) -> bool:
    """Whether element i of the result depends only on element i of one operand."""
    opcode = instruction.opcode
    if opcode == "fusion":
        return _fusion_is_elementwise_on(instruction, operand_number)
    if opcode == "dynamic-update-slice":
        return operand_number == 0
    if opcode == "bitcast-convert":
        given = instruction.operands[0].shape.element_type
        return instruction.shape.element_type.byte_width == given.byte_width
    if opcode == "map":
        dimensions = instruction.integers("dimensions")
        return not dimensions or dimensions == tuple(range(instruction.shape.rank))
    return opcode in _MAY_BE_ELEMENTWISE


def _fusion_is_elementwise_on(fusion: HloInstruction, operand_number: int) -> bool:
    """`HloFusionInstruction::IsElementwiseImpl`: all dependents of the parameter are."""
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
