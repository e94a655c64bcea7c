"""Facts about opcodes, in tables: how many operands, which attributes name called computations.

Mirrors `hlo/ir/hlo_opcode.h` (arities) and, for calls, `HloInstruction::PrintExtraAttributes` and
`MightHaveCalledComputations` of `hlo/ir/hlo_instruction.cc`. An opcode is its text. One that is
not in the tables is kept as it is: its operands are not counted, and any attribute that calls
computations for some other opcode calls them for it too.
"""

from __future__ import annotations

import re
from enum import Enum


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


_FIXED_ARITY = {
    0: "constant iota parameter partition-id replica-id rng-get-and-update-state",
    1: """
        abs acos acosh all-gather-done all-reduce-done asin asinh async-done atanh bitcast
        bitcast-convert broadcast cbrt ceil cholesky count-leading-zeros collective-permute-done
        convert copy copy-done copy-start cosine cosh domain erf exponential
        exponential-minus-one fft floor get-dimension-size get-tuple-element imag infeed is-finite
        log log-plus-one logistic negate not opt-barrier popcnt real recv recv-done
        reduce-precision reshape reverse rng-bit-generator round-nearest-afz round-nearest-even
        rsqrt send-done sign sine sinh slice sqrt tan tanh topk transpose while
    """,
    2: """
        add add-dependency and atan2 compare complex divide dot gather maximum minimum mulhi
        multiply or outfeed pad power remainder send set-dimension-size shift-left
        shift-right-arithmetic shift-right-logical stochastic-convert subtract triangular-solve xor
    """,
    3: "batch-norm-training clamp ragged-dot select select-and-scatter",
    4: "scaled-dot",
    5: "batch-norm-grad batch-norm-inference",
    6: "ragged-all-to-all",
}
_VARIADIC = """
    after-all all-gather all-gather-start all-reduce all-reduce-start all-to-all async-start
    async-update call collective-broadcast collective-permute collective-permute-start
    collective-reduce concatenate conditional convolution custom-call dynamic-reshape
    dynamic-slice dynamic-update-slice fusion map reduce reduce-scatter reduce-window rng scan
    scatter sort tuple
"""

ARITY = {opcode: count for count, names in _FIXED_ARITY.items() for opcode in names.split()}
"""How many operands an opcode takes, where the number is fixed."""

KNOWN_OPCODES = frozenset(ARITY) | frozenset(_VARIADIC.split())

PAYLOAD_OPCODES = frozenset({"constant", "parameter"})
"""What stands between the parentheses of these is not operands."""

ASYNC_OPCODES = frozenset({"async-start", "async-update", "async-done"})

_COLLECTIVES = """
    all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all
    reduce-scatter
"""
COLLECTIVES = frozenset(_COLLECTIVES.split())
"""What devices do together, where it is not asynchronous."""

RUN_IN_PLACE = frozenset({"call", "conditional", "while", "async-start"})
"""What runs what it calls in the flow of the program, in its own place in the schedule."""

_TO_APPLY = """
    all-reduce all-reduce-start collective-reduce map reduce reduce-scatter reduce-window scan
    scatter sort
"""

# Attribute and role, in the order XLA keeps called computations.
CALL_ATTRIBUTES: dict[str, tuple[tuple[str, CallRole], ...]] = {
    "fusion": (("calls", CallRole.FUSION),),
    "call": (("to_apply", CallRole.CALL),),
    "while": (("body", CallRole.BODY), ("condition", CallRole.CONDITION)),
    "conditional": (
        ("branch_computations", CallRole.BRANCH),
        ("true_computation", CallRole.BRANCH),
        ("false_computation", CallRole.BRANCH),
    ),
    "select-and-scatter": (("select", CallRole.SELECT), ("scatter", CallRole.SCATTER)),
    "custom-call": (
        ("to_apply", CallRole.CUSTOM_CALL),
        ("called_computations", CallRole.CUSTOM_CALL),
    ),
    **dict.fromkeys(ASYNC_OPCODES, (("calls", CallRole.ASYNC),)),
    **dict.fromkeys(_TO_APPLY.split(), (("to_apply", CallRole.TO_APPLY),)),
}
"""Which attributes name the computations an opcode calls."""

MAY_CALL_NOTHING = frozenset({"custom-call", "async-update", "async-done"})
"""Those of them that need not name any."""

CALL_ATTRIBUTE_NAMES = (
    "calls",
    "to_apply",
    "body",
    "condition",
    "branch_computations",
    "true_computation",
    "false_computation",
    "called_computations",
    "select",
    "scatter",
)
"""Every attribute that can name a computation."""

CALL_IN_TEXT = re.compile(
    rf", ({'|'.join(CALL_ATTRIBUTE_NAMES)})=(?:\{{([^{{}}\n]*)\}}|%?([\w.\-]+))", re.ASCII
)
"""Such an attribute: its name, then the names in braces or the one without."""

NAME_IN_TEXT = re.compile(r"[\w.\-]+", re.ASCII)

_UNKNOWN_CALLS = tuple((name, CallRole.UNKNOWN) for name in CALL_ATTRIBUTE_NAMES)


def call_attributes(opcode: str) -> tuple[tuple[str, CallRole], ...]:
    """The attributes that may name computations an opcode calls, each with its role."""
    if opcode in KNOWN_OPCODES:
        return CALL_ATTRIBUTES.get(opcode, ())
    return _UNKNOWN_CALLS


def call_role(opcode: str, position: int) -> CallRole:
    """What the computation at a position of `called_computations` is called for."""
    roles = call_attributes(opcode)
    if not roles:
        return CallRole.UNKNOWN
    return roles[min(position, len(roles) - 1)][1]
