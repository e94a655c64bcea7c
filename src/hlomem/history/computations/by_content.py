"""Computations sorted by what they contain, as libtpu numbered values until January 2025.

Mirrors `SortComputationsByContent` of `hlo/ir/hlo_module.cc` as it was then (by size, then by the
text's fingerprint) and `HloPrintOptions::ModuleFingerprint`: numbers for names, callees inlined,
no metadata.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hlomem.history.computations.farmhash import fingerprint64
from hlomem.history.computations.libcxx_sort import introsort
from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_LEFT_OUT = frozenset({"backend_config", "control-predecessors", "metadata"})
_LISTS = frozenset({"branch_computations", "called_computations"})
_NAME = re.compile(r"[^{},% ]+")
_SCALAR_SPACE = re.compile(r"S\(6\)")
_ANY_SPACE = re.compile(r"S\([0-9]+\)")


def sorted_by_content(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, small ones first."""
    size_of = {
        computation: _instruction_count(computation, call_graph)
        for computation in call_graph.module.computations
    }

    @cache
    def fingerprint(computation: HloComputation) -> int:
        return fingerprint64(_content(computation, call_graph, "").encode())

    def is_before(one: HloComputation, other: HloComputation) -> bool:
        if size_of[one] != size_of[other] or one is other:
            return size_of[one] < size_of[other]
        return fingerprint(one) < fingerprint(other)

    order = list(call_graph.module.computations)
    introsort(order, is_before)
    return order


def _instruction_count(computation: HloComputation, call_graph: CallGraph) -> int:
    if call_graph.is_fused(computation):
        return call_graph.bodies[computation].instruction_count
    return len(computation.instructions)


def _content(computation: HloComputation, call_graph: CallGraph, indent: str) -> str:
    """A computation as it is printed for its fingerprint."""
    number_of: dict[HloInstruction, int] = {}
    spaces = _ANY_SPACE if call_graph.is_fused(computation) else _SCALAR_SPACE
    lines = [f"{indent}{{\n"]
    for instruction in call_graph.post_order(computation):
        number_of.setdefault(instruction, len(number_of))
        is_root = "ROOT " if instruction.is_root else ""
        attributes = _attributes(instruction, call_graph, indent + "  ")
        lines.append(
            f"{indent}  {is_root}tmp_{number_of[instruction]} = {_shape(instruction, spaces)} "
            f"{instruction.opcode}({_operands(instruction, number_of)}){attributes}\n"
        )
    lines.append(f"{indent}}}")
    return "".join(lines)


def _shape(instruction: HloInstruction, spaces: re.Pattern[str]) -> str:
    """The shape less the memory spaces that were only written into it once buffers were assigned.

    Scalars get one of their own then, except by copies, and the insides of fusions any.
    """
    text = instruction.shape.text
    if "S(" not in text or (instruction.opcode == "copy" and spaces is _SCALAR_SPACE):
        return text
    return spaces.sub("", text).replace("{:}", "")


def _operands(instruction: HloInstruction, number_of: dict[HloInstruction, int]) -> str:
    if instruction.opcode == "constant":
        return _essence(instruction)
    if not instruction.operands:
        return instruction.payload
    return ", ".join([f"tmp_{number_of[operand]}" for operand in instruction.operands])


def _essence(constant: HloInstruction) -> str:
    """The part of a constant that is printed: integers, and otherwise only zeros and ones."""
    numbers = set(_NUMBER.findall(constant.payload))
    for digit, spellings in _ZERO_AND_ONE.items():
        if numbers and numbers <= spellings:
            return digit
    return constant.payload if constant.shape.element_type.text[0] in "su" else "{...}"


_NUMBER = re.compile(r"[^\s{},()]+")
_ZERO_AND_ONE = {"0": {"0", "-0", "false"}, "1": {"1", "true"}}


def _attributes(instruction: HloInstruction, call_graph: CallGraph, indent: str) -> str:
    parts = []
    for name, value in instruction.attributes.items():
        if name in _LEFT_OUT:
            continue
        if name not in CALL_ATTRIBUTE_NAMES:
            parts.append(f", {name}={value}")
            continue
        by_name = call_graph.module.computation_by_name
        called = [_content(by_name[callee], call_graph, indent) for callee in _NAME.findall(value)]
        shown = "calls" if instruction.opcode == "reduce-scatter" else name
        if name in _LISTS:
            parts.append(f", {shown}={{\n" + ",\n".join(called) + "\n}")
        else:
            parts.append(f", {shown}=\n" + ", ".join(called))
    return "".join(parts)
