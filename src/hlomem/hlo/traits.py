"""What can be known of an opcode: the words in which `hlomem.hlo.opcodes` describes each.

Every type answers one question about an opcode, and its words name rules. The rules are in the
modules that apply them: forwarding in `hlomem.analysis.defined_parts` and `forwarding`, writing in
place in `hlomem.analysis.alias_rules`, sharing in `overwriting`, shapes in `hlomem.hlo.verifier`.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct


class CallRole(Enum):
    """What an instruction calls a computation for."""

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
"""Which of the attributes that name computations an opcode must have."""

Stage = Literal["start", "update", "done"]
"""Which part of an operation that takes a while."""

Elementwise = Literal[
    "no",
    "yes",
    "by width",  # if the elements keep their width
    "by dimensions",  # if it goes over all dimensions in order
    "by body",
    "first operand",  # in no other
    "no array read",  # always: there is none
]
"""When element i of the result needs only element i of every operand."""

Reads = Literal["everything", "top", "nothing"]
"""Which parts of a tuple an opcode reads, rather than hands on (`MayUseOperandValue`)."""

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
"""How values of others come to be a part of the result; all the rest of it is new.

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
"""Which operand the result must be written into (`AliasInfo::GetInPlaceInputOutputPairs`)."""

Sharing = Literal[
    "any operand",
    "only first",
    "only second",
    "only declared",  # none but what `InPlace` says
    "same number",  # the operand with the number of the output, if nothing else reads it
]
"""Which operand of its shape the result may be written over, besides what `InPlace` and
`Elementwise` say (`HloDataflowAnalysis::CanShareOperandBufferWithUser`)."""

Elements = Literal[
    "places",
    "reordered",
    "copied",
    "values",  # the numbers alone, in another type
]
"""What the result keeps of its operand's elements, where it is the same data again."""


class Traits(Struct, frozen=True):
    """What is known of an opcode."""

    arity: int | None
    """How many operands it takes; None where the number is not fixed."""
    calls: Calls = ()
    """The attributes that name the computations it calls."""
    needs: Needs = "any"
    has_payload: bool = False
    """Whether what stands between its parentheses is not operands."""
    runs_in_flow: bool = False
    """Whether it runs what it calls in the flow of the program, in its own place."""
    is_async: bool = False
    """Whether it is a stage of any computation that runs asynchronously."""
    is_collective: bool = False
    """Whether it is what devices do together, and not a stage of it."""
    stage: Stage | None = None
    elementwise: Elementwise = "no"
    reads: Reads = "everything"
    forwards: Forwarding | None = None
    writes: InPlace | None = None
    shares: Sharing | None = None
    keeps: Elements | None = None
