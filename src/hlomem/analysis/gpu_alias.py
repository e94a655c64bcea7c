"""The operands that an NVIDIA GPU may overwrite with a result.

Mirrors `service/gpu/alias_info.cc` and `nvptx_alias_info.cc`. A kernel may overwrite a parameter if
each of its elements is read only by the thread that overwrites it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import is_elementwise, is_elementwise_on
from hlomem.analysis.gpu_kernels import FusionAnalysis, analyze_fusion
from hlomem.analysis.machine_rules import AliasRules
from hlomem.hlo.opcodes import Opcode
from hlomem.hlo.padding import element_count

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape, ShapeIndex

_MATMUL_WITH_BIAS = "__cublas$lt$matmul"
_BIAS = 2


def may_alias(operand: HloInstruction, user: HloInstruction, user_index: ShapeIndex) -> bool | None:
    """Whether a user may overwrite an operand; None leaves it to the rules of all machines."""
    opcode = user.opcode
    if opcode == "fusion":
        return _fusion_may_alias(operand, user, user_index)
    if opcode == "all-reduce" or opcode == "collective-broadcast":
        return len(user.operands) == 1 or (
            len(user_index) == 1 and user.operands[user_index[0]] is operand
        )
    if opcode == "custom-call":
        return _custom_call_may_alias(operand, user, user_index)
    return None


def _custom_call_may_alias(
    operand: HloInstruction, user: HloInstruction, user_index: ShapeIndex
) -> bool:
    """A matrix multiplication may add to its bias in place."""
    if user.string("custom_call_target") != _MATMUL_WITH_BIAS or tuple(user_index) != (0,):
        return False
    if [i for i, other in enumerate(user.operands) if other is operand] != [_BIAS]:
        return False
    config = user.backend_config
    gemm = config.get("gemm_backend_config") if isinstance(config, dict) else None
    return isinstance(gemm, dict) and gemm.get("beta", 0) != 0


def _fusion_may_alias(
    operand: HloInstruction, fusion: HloInstruction, user_index: ShapeIndex
) -> bool:
    """`FusionCanShareBufferHint`."""
    if not _same_elements(operand.shape, fusion.shape.subshape(user_index)):
        return False
    body = fusion.called_computations[0]
    analysis = analyze_fusion(fusion)
    output = body.root
    for i in user_index:
        if output.opcode == "tuple":
            output = output.operands[i]
    reached = _reach(
        body.parameters[fusion.operands.index(operand)], output, user_index, analysis.reduction
    )
    if reached is None or output not in reached:
        return False
    return len(analysis.roots) == 1 or _others_keep_order(output, reached, analysis)


def _same_elements(one: Shape, other: Shape) -> bool:
    """Whether two arrays have as many elements of as many bits."""
    return one == other or (
        one.is_array
        and other.is_array
        and element_count(one) == element_count(other)
        and one.element_type.bits == other.element_type.bits
    )


def _reach(
    parameter: HloInstruction,
    output: HloInstruction,
    user_index: ShapeIndex,
    reduction: HloInstruction | None,
) -> set[HloInstruction] | None:
    """The instructions that depend on a parameter; None if one reads other threads' elements."""
    written = output.operands[0] if output.opcode == "bitcast" else output
    reached = {parameter}
    pending = [parameter]
    while pending:
        instruction = pending.pop()
        if instruction is reduction:
            continue  # computed before anything is written
        for user in instruction.users:
            if user not in reached:
                reached.add(user)
                pending.append(user)
            if not _reads_what_it_writes(instruction, user, written, user_index, reduction):
                return None
    return reached


def _reads_what_it_writes(
    operand: HloInstruction,
    user: HloInstruction,
    written: HloInstruction,
    user_index: ShapeIndex,
    reduction: HloInstruction | None,
) -> bool:
    opcode = user.opcode
    number = user.operands.index(operand)
    if user is written and user.operands.count(operand) == 1:
        if opcode == "scatter" and number < max(1, len(user.shape.elements)):
            return True
        if opcode == "sort":
            return tuple(user_index) == (number,)
    if (
        opcode == "dynamic-slice"
        and written.opcode == "dynamic-update-slice"
        and written.operands[0] is user.operands[0]
        and user.shape == written.operands[1].shape
    ):
        return element_count(user.shape) == 1 or user.operands[1:] == written.operands[2:]
    if opcode == "bitcast" or opcode == "tuple" or user is reduction:
        return True
    if opcode != "copy" and is_elementwise_on(user, number):
        return True
    return user is written and opcode == "dynamic-update-slice" and number == 1


def _others_keep_order(
    output: HloInstruction, reached: set[HloInstruction], analysis: FusionAnalysis
) -> bool:
    """Whether other results that depend on the parameter are written in the same order."""
    pairs = zip(analysis.roots, analysis.heroes, strict=True)
    hero_of = {root: hero for root, hero in pairs if root in reached}
    if all(root is output for root in hero_of):
        return True
    written = output.operands[0] if output.opcode == "bitcast" else output
    return is_elementwise(written) and not any(
        hero.opcode == "copy" or hero.opcode == "transpose" for hero in hero_of.values()
    )


_SHARING_OPCODES = frozenset[Opcode]({"all-reduce", "collective-broadcast", "custom-call"})
RULES = AliasRules(may_alias, _SHARING_OPCODES, counts_elements=True)
"""The rules of jaxlib 0.11.2, the only release whose GPU dumps were seen."""
