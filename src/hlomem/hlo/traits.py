"""What can be known of an opcode: the words in which `hlomem.hlo.opcodes` describes each.

Every enumeration answers one question about an opcode, and its members name rules. The rules are
in the modules that apply them: forwarding in `hlomem.analysis.defined_parts` and `forwarding`,
writing in place and sharing in `hlomem.analysis.alias_rules`, shapes in `hlomem.hlo.verifier`.
"""

from __future__ import annotations

from enum import Enum, auto

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


class Needs(Enum):
    """Which of the attributes that name computations an opcode must have."""

    ANY = auto()
    ALL = auto()
    NOTHING = auto()


class Stage(Enum):
    """Which part of an operation that takes a while."""

    START = auto()
    UPDATE = auto()
    DONE = auto()


class Elementwise(Enum):
    """When element i of the result needs only element i of every operand."""

    NO = auto()
    YES = auto()
    BY_WIDTH = auto()
    """If the elements keep their width."""
    BY_DIMENSIONS = auto()
    """If it goes over all dimensions in order."""
    BY_BODY = auto()
    FIRST_OPERAND = auto()
    """In the first operand only."""
    NO_ARRAY_READ = auto()
    """Always: there is no array to read."""


class Reads(Enum):
    """Which parts of a tuple an opcode reads, rather than hands on (`MayUseOperandValue`)."""

    EVERYTHING = auto()
    TOP = auto()
    NOTHING = auto()


class Forwarding(Enum):
    """How values of others come to be a part of the result; all the rest of it is new.

    `UpdateInstructionValueSet` and `InitializeInstructionValueSets` of hlo_dataflow_analysis.cc.
    """

    WHOLE_OPERAND = auto()
    ELEMENT = auto()
    ELEMENTS = auto()
    """The operands are the elements; the table is new."""
    BELOW_TOP = auto()
    """Of a tuple all but the table, which is copied; of an array nothing."""
    CALLEE_RESULT = auto()
    BRANCH_RESULTS = auto()
    LOOP = auto()
    ARGUMENT = auto()
    SECOND_ELEMENT = auto()
    """What a start put there; the tables are new."""
    GATHER_START = auto()
    PERMUTE_START = auto()
    COPY_START = auto()
    COPY_DONE = auto()
    SEND = auto()
    RECV_DONE = auto()
    ASYNC_OPERANDS = auto()
    ASYNC_DONE = auto()


class InPlace(Enum):
    """Which operand the result must be written into (`AliasInfo::GetInPlaceInputOutputPairs`)."""

    FIRST_OPERAND = auto()
    SECOND_OPERAND = auto()
    ALL_OPERANDS = auto()
    """Each into the element of its number."""
    UPDATED_OPERANDS = auto()
    """Those a scatter updates, each into the element of its number."""
    PERMUTED_SLICES = auto()
    DECLARED = auto()
    ASYNC_START = auto()
    ASYNC_DONE = auto()
    BY_BODY = auto()


class Sharing(Enum):
    """Which operand of its shape the result may be written over, besides what `InPlace` and
    `Elementwise` say (`HloDataflowAnalysis::CanShareOperandBufferWithUser`)."""

    ANY_OPERAND = auto()
    ONLY_FIRST = auto()
    ONLY_SECOND = auto()
    SAME_NUMBER = auto()
    """The operand with the number of the output, if nothing else reads it."""
    BY_MACHINE = auto()
    """Only where the rules of a machine say so."""


class Elements(Enum):
    """What the result keeps of its operand's elements: it is the same data again."""

    PLACES = auto()
    REORDERED = auto()
    COPIED = auto()
    VALUES = auto()
    """Only the numbers, in another type."""


Calls = tuple[tuple[str, CallRole], ...]
"""Attribute and role, in the order XLA keeps called computations."""


class Traits(Struct, frozen=True):
    """What is known of an opcode."""

    arity: int | None
    """How many operands it takes; None where the number is not fixed."""
    calls: Calls = ()
    """The attributes that name the computations it calls."""
    needs: Needs = Needs.ANY
    has_payload: bool = False
    """Whether what stands between its parentheses is not operands."""
    runs_in_flow: bool = False
    """Whether it runs what it calls in the flow of the program, in its own place."""
    is_async: bool = False
    """Whether it is an operation on any asynchronous computation."""
    is_collective: bool = False
    """Whether it is what devices do together, and not a part of it."""
    stage: Stage | None = None
    elementwise: Elementwise = Elementwise.NO
    reads: Reads = Reads.EVERYTHING
    forwards: Forwarding | None = None
    writes: InPlace | None = None
    shares: Sharing | None = None
    keeps: Elements | None = None
