"""The traits of an opcode: the words in which `hlomem.hlo.opcodes` describes each.

Every type answers one question about an opcode, and its words name rules. The rules are in the
modules that apply them: forwarding in `hlomem.analysis.defined_parts` and `forwarding`, writing in
place in `hlomem.analysis.alias_rules`, sharing in `overwriting`, shapes in `hlomem.hlo.verifier`.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct


class CallRole(Enum):
    """The purpose for which an instruction calls a computation."""

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
"""Attribute and role, in the order XLA keeps called computations."""

Needs = Literal["any", "all", "nothing"]
"""The attributes naming computations that an opcode must have."""

Stage = Literal["start", "update", "done"]
"""The stage of an operation that is split over several instructions."""

Elementwise = Literal[
    "no",
    "yes",
    "by width",  # if the elements keep their width
    "by dimensions",  # if it goes over all dimensions in order
    "by body",
    "first operand",  # in no other
    "no array read",  # always: there is none
]
"""The condition under which element i of the result needs only element i of every operand."""

Reads = Literal["everything", "top", "nothing"]
"""The parts of a tuple an opcode reads, rather than hands on (`MayUseOperandValue`)."""

Forwarding = Literal[
    "whole operand",
    "element",
    "elements",  # the operands are; the table is new
    "below top",  # of a tuple all but the table, which is copied; of an array nothing
    "callee result",
    "branch results",
    "loop",
    "argument",
    "second element",  # what a start put there; the tables are new
    "gather start",
    "permute start",
    "copy start",
    "copy done",
    "sent operand",
    "received element",
    "async operands",
    "async done",
]
"""The way other instructions' values become part of the result; all the rest of it is new.

`InitializeInstructionValueSets` and `UpdateInstructionValueSet` of hlo_dataflow_analysis.cc.
"""

InPlace = Literal[
    "first operand",
    "second operand",
    "all operands",  # each into the element of its number
    "updated operands",  # those a scatter updates, each into the element of its number
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
    "only declared",  # none but what `InPlace` says
    "same number",  # the operand with the number of the output, if nothing else reads it
]
"""The operands of its shape the result may be written over, besides those `InPlace` and
`Elementwise` name (`HloDataflowAnalysis::CanShareOperandBufferWithUser`)."""

Elements = Literal[
    "places",
    "reordered",
    "copied",
    "values",  # the numbers alone, in another type
]
"""The properties of its operand's elements that the result keeps, where it is the same data."""


class Traits(Struct, frozen=True):
    """The facts about an opcode."""

    arity: int | None
    """The number of its operands; None where it is not fixed."""
    calls: Calls = ()
    """The attributes that name the computations it calls."""
    needs: Needs = "any"
    has_payload: bool = False
    """Whether it has something other than operands between its parentheses."""
    runs_in_flow: bool = False
    """Whether it runs its callees in the flow of the program, in its own place."""
    is_async: bool = False
    """Whether it is a stage of any computation that runs asynchronously."""
    is_collective: bool = False
    """Whether devices run it together; false for the stages of such an operation."""
    stage: Stage | None = None
    elementwise: Elementwise = "no"
    reads: Reads = "everything"
    forwards: Forwarding | None = None
    writes: InPlace | None = None
    shares: Sharing | None = None
    keeps: Elements | None = None
