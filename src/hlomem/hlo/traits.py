"""The traits of opcodes, whose values name rules.

The rules are in the modules that apply them: forwarding in `hlomem.analysis.defined_parts` and
`forwarding`, in-place writes in `alias_rules`, sharing in `overwriting`, shapes in
`hlomem.hlo.verifier`.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct


class CallRole(Enum):
    FUSION = "fusion"
    CALL = "call"
    BODY = "body"
    CONDITION = "condition"
    BRANCH = "branch"
    TO_APPLY = "to_apply"
    SELECT = "select"
    SCATTER = "scatter"
    ASYNC = "async"
    CUSTOM_CALL = "custom_call"
    UNKNOWN = "unknown"


Calls = tuple[tuple[str, CallRole], ...]
"""Attribute and role, in XLA's order of called computations."""

Needs = Literal["any", "all", "nothing"]
"""The calling attributes that an opcode must have."""

Stage = Literal["start", "update", "done"]
"""The stage of an operation that is split into several instructions."""

Elementwise = Literal[
    "no",
    "yes",
    "by width",  # if the width of elements is unchanged
    "by dimensions",  # if it maps all dimensions in order
    "by body",
    "first operand",  # only in this one
    "no array read",  # always
]
"""The condition under which element i of the result depends only on element i of every operand."""

Reads = Literal["everything", "top", "nothing"]
"""The parts of a tuple an opcode reads, not just forwards (`MayUseOperandValue`)."""

Forwarding = Literal[
    "whole operand",
    "element",
    "elements",  # the operands; the table is new
    "below top",  # of a tuple, all but the table; of an array, nothing
    "callee result",
    "branch results",
    "loop",
    "argument",
    "second element",  # a start's result; the tables are new
    "gather start",
    "permute start",
    "copy start",
    "copy done",
    "sent operand",
    "received element",
    "async operands",
    "async done",
]
"""The values of other instructions in the result; the rest of it is new
(`InitializeInstructionValueSets` and `UpdateInstructionValueSet` of hlo_dataflow_analysis.cc)."""

InPlace = Literal[
    "first operand",
    "second operand",
    "all operands",  # each into the element of its number
    "updated operands",  # of a scatter, each into the element of its number
    "permuted slices",
    "declared",
    "async start",
    "async done",
    "by body",
]
"""The operand the result must be written into (`AliasInfo::GetInPlaceInputOutputPairs`)."""

Sharing = Literal[
    "any operand",
    "only first",
    "only second",
    "only declared",  # only those of `InPlace`
    "same number",  # the operand with the number of the output, if nothing else reads it
]
"""The operands of its shape that the result may overwrite, in addition to those of `InPlace` and
`Elementwise` (`HloDataflowAnalysis::CanShareOperandBufferWithUser`)."""

Elements = Literal[
    "places", "reordered", "copied", "values"  # only the numbers, in another type
]
"""The properties of its operand's elements that the result keeps, if it is the same data."""


class Traits(Struct, frozen=True):
    arity: int | None
    """The number of operands; None if it varies."""
    calls: Calls = ()
    needs: Needs = "any"
    has_payload: bool = False
    """Whether it has something other than operands in its parentheses."""
    runs_in_flow: bool = False
    """Whether its callees are part of the schedule."""
    is_async: bool = False
    is_collective: bool = False
    """Whether it is a collective; false for stages of one."""
    stage: Stage | None = None
    elementwise: Elementwise = "no"
    reads: Reads = "everything"
    forwards: Forwarding | None = None
    writes: InPlace | None = None
    shares: Sharing | None = None
    keeps: Elements | None = None
