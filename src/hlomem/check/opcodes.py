"""What the judge knows of opcodes: its own tables, which the planner does not see.

A plan is judged by other tables than it was made with (`hlomem.hlo.opcodes`), so that a mistake in
one of them shows. Nothing here may come from there but the names of opcodes, for the type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import Opcode

if TYPE_CHECKING:
    from collections.abc import Mapping

READS_ELSEWHERE = frozenset[Opcode](
    {
        "all-gather",
        "all-gather-start",
        "all-to-all",
        "batch-norm-grad",
        "batch-norm-inference",
        "batch-norm-training",
        "broadcast",
        "cholesky",
        "concatenate",
        "constant",
        "convolution",
        "copy",
        "dot",
        "dynamic-slice",
        "fft",
        "gather",
        "iota",
        "pad",
        "parameter",
        "ragged-all-to-all",
        "ragged-dot",
        "reduce",
        "reduce-scatter",
        "reduce-window",
        "reverse",
        "rng-bit-generator",
        "scaled-dot",
        "select-and-scatter",
        "slice",
        "topk",
        "transpose",
        "tuple",
    }
)
"""What reads an operand at other places than it writes."""

ONLY_INTO_OPERAND: Mapping[Opcode, int] = {
    "dynamic-update-slice": 0,
    "set-dimension-size": 0,
    "triangular-solve": 1,
}
"""What is written over one of its operands only, and which."""

SAME_PLACE = frozenset[Opcode](
    {
        "abs",
        "acos",
        "acosh",
        "add",
        "add-dependency",
        "and",
        "asin",
        "asinh",
        "atan2",
        "atanh",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "copy",
        "cosine",
        "cosh",
        "count-leading-zeros",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "imag",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "map",
        "maximum",
        "minimum",
        "mulhi",
        "multiply",
        "negate",
        "not",
        "opt-barrier",
        "or",
        "popcnt",
        "power",
        "real",
        "reduce-precision",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "sine",
        "sinh",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "xor",
    }
)
"""What reads of each operand the element it writes."""

SAME_BYTES = frozenset[Opcode]({"bitcast", "bitcast-convert", "reshape", "tuple"})
"""What keeps the bytes of its operands where they are, whatever they are called."""

SLICES = frozenset[Opcode]({"dynamic-slice", "slice"})
"""What reads a window of its operand."""

KEEPS_NUMBER = frozenset[Opcode]({"bitcast", "convert", "copy", "reshape"})
"""What a scalar passes through and stays the same number."""

RUNS_OTHERS = frozenset[Opcode]({"async-start", "async-update", "call", "conditional", "while"})
"""What may run a computation in its place."""

BINDS_OPERANDS = frozenset[Opcode]({"async-start", "async-update"})
"""What brings operands to an asynchronous computation."""

READS_TOP_LEVEL = frozenset[Opcode]({"copy", "get-tuple-element"})
"""What reads a tuple, but not its elements."""

READS_NOTHING = frozenset[Opcode]({"domain", "tuple"})
"""What hands its operands on without reading them."""

PASSES_OPERANDS_ON = frozenset[Opcode]({"call", "conditional", "tuple", "while"})
"""What passes operands on, or to instructions that are in the sequence themselves."""
