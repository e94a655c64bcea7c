"""The table of opcodes and their traits.

Mirrors `hlo/ir/hlo_opcode.h` (arities), `HloInstruction::PrintExtraAttributes` and
`MightHaveCalledComputations` (calls), `IsOpElementwise`, and the switches over opcodes of
`hlo/analysis/hlo_dataflow_analysis.cc` and `alias_info.cc`. A trait names a rule, which is in the
module that applies it: most new opcodes are just a row here.

An opcode is its text; `Opcode` lists the known ones for the type checker. Unknown ones may have any
number of operands and callees by any calling attribute, and define a new value.

Only `hlomem.check` has its own tables, so that a mistake here is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.traits import CallRole, Calls, Elementwise, Forwarding, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


Kind = TypeVar("Kind", bound=str)
Rule = TypeVar("Rule")

# fmt: off
Opcode = Literal[
    "abs", "acos", "acosh", "add", "add-dependency", "after-all", "all-gather",
    "all-gather-done", "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start",
    "all-to-all", "and", "asin", "asinh", "async-done", "async-start", "async-update", "atan2",
    "atanh", "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "bitcast",
    "bitcast-convert", "broadcast", "call", "cbrt", "ceil", "cholesky", "clamp",
    "collective-broadcast", "collective-permute", "collective-permute-done",
    "collective-permute-start", "collective-reduce", "compare", "complex", "concatenate",
    "conditional", "constant", "convert", "convolution", "copy", "copy-done", "copy-start",
    "cosh", "cosine", "count-leading-zeros", "custom-call", "divide", "domain", "dot",
    "dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "erf", "exponential",
    "exponential-minus-one", "fft", "floor", "fusion", "gather", "get-dimension-size",
    "get-tuple-element", "imag", "infeed", "iota", "is-finite", "log", "log-plus-one",
    "logistic", "map", "maximum", "minimum", "mulhi", "multiply", "negate", "not",
    "opt-barrier", "or", "outfeed", "pad", "parameter", "partition-id", "popcnt", "power",
    "ragged-all-to-all", "ragged-dot", "real", "recv", "recv-done", "reduce",
    "reduce-precision", "reduce-scatter", "reduce-window", "remainder", "replica-id", "reshape",
    "reverse", "rng", "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz",
    "round-nearest-even", "rsqrt", "scaled-dot", "scan", "scatter", "select",
    "select-and-scatter", "send", "send-done", "set-dimension-size", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sinh", "slice", "sort",
    "sqrt", "stochastic-convert", "subtract", "tan", "tanh", "topk", "transpose",
    "triangular-solve", "tuple", "while", "xor",
]
# fmt: on
"""The known opcodes; any text at run time."""


def as_opcode(text: str) -> Opcode:
    return cast("Opcode", text)


_CALL: Calls = (("to_apply", CallRole.CALL),)
_FUSION: Calls = (("calls", CallRole.FUSION),)
_TO_APPLY: Calls = (("to_apply", CallRole.TO_APPLY),)
_ASYNC: Calls = (("calls", CallRole.ASYNC),)
_LOOP: Calls = (("body", CallRole.BODY), ("condition", CallRole.CONDITION))
_BRANCHES: Calls = (
    ("branch_computations", CallRole.BRANCH),
    ("true_computation", CallRole.BRANCH),
    ("false_computation", CallRole.BRANCH),
)
_SELECT_AND_SCATTER: Calls = (("select", CallRole.SELECT), ("scatter", CallRole.SCATTER))
_CUSTOM_CALL: Calls = (
    ("to_apply", CallRole.CUSTOM_CALL),
    ("called_computations", CallRole.CUSTOM_CALL),
)

_UNARY = Traits(1, elementwise="yes")
_BINARY = Traits(2, elementwise="yes")
_TERNARY = Traits(3, elementwise="yes")

TRAITS: Mapping[Opcode, Traits] = {
    "abs": _UNARY,
    "acos": _UNARY,
    "acosh": _UNARY,
    "add": _BINARY,
    "add-dependency": Traits(2, forwards="whole operand"),
    "after-all": Traits(None),
    "all-gather": Traits(None, is_collective=True),
    "all-gather-done": Traits(1, stage="done", forwards="second element"),
    "all-gather-start": Traits(None, stage="start", forwards="gather start"),
    "all-reduce": Traits(None, calls=_TO_APPLY, is_collective=True),
    "all-reduce-done": Traits(1, stage="done", forwards="whole operand"),
    "all-reduce-start": Traits(None, calls=_TO_APPLY, stage="start", writes="all operands"),
    "all-to-all": Traits(None, is_collective=True),
    "and": _BINARY,
    "asin": _UNARY,
    "asinh": _UNARY,
    "async-done": Traits(
        1,
        calls=_ASYNC,
        needs="nothing",
        stage="done",
        is_async=True,
        forwards="async done",
        writes="async done",
    ),
    "async-start": Traits(
        None,
        calls=_ASYNC,
        stage="start",
        is_async=True,
        runs_in_flow=True,
        forwards="async operands",
        writes="async start",
    ),
    "async-update": Traits(
        None,
        calls=_ASYNC,
        needs="nothing",
        stage="update",
        is_async=True,
        forwards="async operands",
        writes="declared",
    ),
    "atan2": _BINARY,
    "atanh": _UNARY,
    "batch-norm-grad": Traits(5),
    "batch-norm-inference": Traits(5),
    "batch-norm-training": Traits(3),
    "bitcast": Traits(1, forwards="whole operand", keeps="places"),
    "bitcast-convert": Traits(1, elementwise="by width"),
    "broadcast": Traits(1),
    "call": Traits(None, calls=_CALL, runs_in_flow=True, forwards="callee result"),
    "cbrt": _UNARY,
    "ceil": _UNARY,
    "cholesky": Traits(1),
    "clamp": _TERNARY,
    "collective-broadcast": Traits(None, is_collective=True),
    "collective-permute": Traits(None, is_collective=True, writes="permuted slices"),
    "collective-permute-done": Traits(1, stage="done", forwards="second element"),
    "collective-permute-start": Traits(
        None, stage="start", forwards="permute start", writes="permuted slices"
    ),
    "collective-reduce": Traits(None, calls=_TO_APPLY, is_collective=True),
    "compare": _BINARY,
    "complex": _BINARY,
    "concatenate": Traits(None),
    "conditional": Traits(
        None, calls=_BRANCHES, runs_in_flow=True, forwards="branch results", shares="any operand"
    ),
    "constant": Traits(0, has_payload=True, elementwise="no array read"),
    "convert": Traits(1, elementwise="yes", keeps="values"),
    "convolution": Traits(None),
    "copy": Traits(1, elementwise="yes", reads="top", forwards="below top", keeps="copied"),
    "copy-done": Traits(1, stage="done", forwards="copy done", keeps="copied"),
    "copy-start": Traits(1, stage="start", forwards="copy start", keeps="copied"),
    "cosh": _UNARY,
    "cosine": _UNARY,
    "count-leading-zeros": _UNARY,
    "custom-call": Traits(
        None, calls=_CUSTOM_CALL, needs="nothing", writes="declared", shares="only declared"
    ),
    "divide": _BINARY,
    "domain": Traits(1, reads="nothing", forwards="whole operand"),
    "dot": Traits(2),
    "dynamic-reshape": Traits(None),
    "dynamic-slice": Traits(None),
    "dynamic-update-slice": Traits(
        None, elementwise="first operand", writes="first operand", shares="only first"
    ),
    "erf": _UNARY,
    "exponential": _UNARY,
    "exponential-minus-one": _UNARY,
    "fft": Traits(1),
    "floor": _UNARY,
    "fusion": Traits(None, calls=_FUSION, elementwise="by body", writes="by body"),
    "gather": Traits(2),
    "get-dimension-size": Traits(1),
    "get-tuple-element": Traits(1, reads="top", forwards="element"),
    "imag": _UNARY,
    "infeed": Traits(1),
    "iota": Traits(0),
    "is-finite": _UNARY,
    "log": _UNARY,
    "log-plus-one": _UNARY,
    "logistic": _UNARY,
    "map": Traits(None, calls=_TO_APPLY, elementwise="by dimensions"),
    "maximum": _BINARY,
    "minimum": _BINARY,
    "mulhi": _BINARY,
    "multiply": _BINARY,
    "negate": _UNARY,
    "not": _UNARY,
    "opt-barrier": Traits(1, forwards="whole operand"),
    "or": _BINARY,
    "outfeed": Traits(2),
    "pad": Traits(2),
    "parameter": Traits(0, has_payload=True, forwards="argument"),
    "partition-id": Traits(0),
    "popcnt": _UNARY,
    "power": _BINARY,
    "ragged-all-to-all": Traits(6, is_collective=True, writes="second operand"),
    "ragged-dot": Traits(3),
    "real": _UNARY,
    "recv": Traits(1),
    "recv-done": Traits(1, stage="done", forwards="received element"),
    "reduce": Traits(None, calls=_TO_APPLY),
    "reduce-precision": _UNARY,
    "reduce-scatter": Traits(None, calls=_TO_APPLY, is_collective=True),
    "reduce-window": Traits(None, calls=_TO_APPLY),
    "remainder": _BINARY,
    "replica-id": Traits(0),
    "reshape": Traits(1, keeps="places"),
    "reverse": Traits(1),
    "rng": Traits(None, elementwise="no array read"),
    "rng-bit-generator": Traits(1),
    "rng-get-and-update-state": Traits(0),
    "round-nearest-afz": _UNARY,
    "round-nearest-even": _UNARY,
    "rsqrt": _UNARY,
    "scaled-dot": Traits(4),
    "scan": Traits(None, calls=_TO_APPLY),
    "scatter": Traits(None, calls=_TO_APPLY, writes="updated operands", shares="only first"),
    "select": _TERNARY,
    "select-and-scatter": Traits(3, calls=_SELECT_AND_SCATTER, needs="all"),
    "send": Traits(2, forwards="sent operand"),
    "send-done": Traits(1, stage="done"),
    "set-dimension-size": Traits(2, writes="first operand", shares="only first"),
    "shift-left": _BINARY,
    "shift-right-arithmetic": _BINARY,
    "shift-right-logical": _BINARY,
    "sign": _UNARY,
    "sine": _UNARY,
    "sinh": _UNARY,
    "slice": Traits(1),
    "sort": Traits(None, calls=_TO_APPLY, shares="same number"),
    "sqrt": _UNARY,
    "stochastic-convert": _BINARY,
    "subtract": _BINARY,
    "tan": _UNARY,
    "tanh": _UNARY,
    "topk": Traits(1),
    "transpose": Traits(1, keeps="reordered"),
    "triangular-solve": Traits(2, shares="only second"),
    "tuple": Traits(None, reads="nothing", forwards="elements"),
    "while": Traits(
        1, calls=_LOOP, needs="all", runs_in_flow=True, forwards="loop", shares="any operand"
    ),
    "xor": _BINARY,
}


def opcodes_where(is_wanted: Callable[[Traits], object]) -> frozenset[Opcode]:
    """The known opcodes whose traits satisfy a predicate."""
    return frozenset([opcode for opcode, traits in TRAITS.items() if is_wanted(traits)])


def opcodes_forwarding(*rules: Forwarding) -> frozenset[Opcode]:
    return opcodes_where(lambda traits: traits.forwards in rules)


def opcodes_elementwise(*conditions: Elementwise) -> frozenset[Opcode]:
    """The known opcodes that are elementwise under one of some conditions."""
    return opcodes_where(lambda traits: traits.elementwise in conditions)


def rules_by_opcode(
    trait: Callable[[Traits], Kind | None], rules: Mapping[Kind, Rule]
) -> dict[Opcode, Rule]:
    """Rules by opcode, from the rules for the values of a trait."""
    words = {opcode: trait(traits) for opcode, traits in TRAITS.items()}
    return {opcode: rules[word] for opcode, word in words.items() if word and word in rules}


KNOWN_OPCODES = frozenset(TRAITS)

PAYLOAD_OPCODES = opcodes_where(lambda traits: traits.has_payload)
"""Opcodes with something other than operands in their parentheses."""

ASYNC_OPCODES = opcodes_where(lambda traits: traits.is_async)
"""The three that wrap any computation."""

COLLECTIVES = opcodes_where(lambda traits: traits.is_collective)
"""Collective opcodes, without the stages of asynchronous ones."""

RUN_IN_PLACE = opcodes_where(lambda traits: traits.runs_in_flow)
"""Opcodes that run their callees as part of the schedule."""

CALLING = opcodes_where(lambda traits: traits.calls)

ELEMENTWISE = opcodes_elementwise("yes", "by width")
"""`HloInstruction::IsOpElementwise`."""

MERGING = opcodes_forwarding("argument", "loop", "branch results")
"""Opcodes that may merge values of different instructions."""

DEFINE_NOTHING = opcodes_forwarding(
    "whole operand", "element", "callee result", "branch results", "loop", "copy done"
)
"""Opcodes whose whole result is forwarded."""

HANDING_ON = opcodes_where(lambda traits: traits.forwards not in (None, "argument", "below top"))
"""Opcodes whose result is, or contains, arrays of other instructions, in their layouts."""

IN_EARLIER_MEMORY = opcodes_forwarding(
    "whole operand", "element", "elements", "loop", "branch results"
) | opcodes_where(lambda traits: traits.stage == "update" or traits.stage == "done")
"""Opcodes that define no array: views, and the ends of started operations."""

COPYING = opcodes_where(lambda traits: traits.keeps == "copied" or traits.keeps == "reordered")
"""Opcodes that only move elements."""

MOVES = opcodes_where(lambda traits: traits.keeps == "copied")
"""Opcodes whose result is a copy of their operand."""
SAME_DATA = opcodes_where(lambda traits: traits.keeps)
"""Opcodes that return their operand's data, possibly in another layout or type."""

CALL_ATTRIBUTE_NAMES = tuple(
    dict.fromkeys([name for traits in TRAITS.values() for name, _ in traits.calls])
)
"""Every attribute that can name a computation."""

CALL_IN_TEXT = lazy_pattern(
    rf", ({'|'.join(CALL_ATTRIBUTE_NAMES)})=(?:\{{([^{{}}\n]*)\}}|%?([\w.\-]+))", re.ASCII
)
"""A calling attribute: its name, then the names in braces, or one without."""

NAME_IN_TEXT = lazy_pattern(r"[\w.\-]+", re.ASCII)

_UNKNOWN_TRAITS = Traits(
    None, calls=tuple([(name, CallRole.UNKNOWN) for name in CALL_ATTRIBUTE_NAMES]), needs="nothing"
)
_STAGES = lazy_pattern(r"-(?:start|update|done)$")


def traits_of(opcode: Opcode) -> Traits:
    """The traits of an opcode; an unknown one may call computations by any attribute."""
    return TRAITS.get(opcode, _UNKNOWN_TRAITS)


def call_role(opcode: Opcode, position: int) -> CallRole:
    roles = traits_of(opcode).calls
    return roles[min(position, len(roles) - 1)][1] if roles else CallRole.UNKNOWN


def communicates(opcode: str) -> bool:
    """Whether an opcode, or the operation it is a stage of, exchanges data between devices."""
    operation = _STAGES.sub("", opcode)
    return operation in COLLECTIVES or operation == "send" or operation == "recv"
