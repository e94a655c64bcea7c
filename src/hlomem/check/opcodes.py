"""The checker's own tables of opcodes, which the planner does not see.

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
"""Opcodes that read an operand at other places than they write."""

ONLY_INTO_OPERAND: Mapping[Opcode, int] = {
    "dynamic-update-slice": 0,
    "set-dimension-size": 0,
    "triangular-solve": 1,
}
"""Opcodes whose result may overwrite one operand only, with its number."""

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
"""Opcodes that read, of each operand, the element they write."""

SAME_BYTES = frozenset[Opcode]({"bitcast", "bitcast-convert", "reshape", "tuple"})
"""Opcodes that leave their operands' bytes where they are, under another name or shape."""

SLICES = frozenset[Opcode]({"dynamic-slice", "slice"})
"""Opcodes that read a window of their operand."""

KEEPS_NUMBER = frozenset[Opcode]({"bitcast", "convert", "copy", "reshape"})
"""Opcodes that leave the number in a scalar as it is."""

RUNS_OTHERS = frozenset[Opcode]({"async-start", "async-update", "call", "conditional", "while"})
"""Opcodes that may run a computation in their place."""

BINDS_OPERANDS = frozenset[Opcode]({"async-start", "async-update"})
"""Opcodes that bind operands of an asynchronous computation."""

READS_TOP_LEVEL = frozenset[Opcode]({"copy", "get-tuple-element"})
"""Opcodes that read a tuple, but not its elements."""

READS_NOTHING = frozenset[Opcode]({"domain", "tuple"})
"""Opcodes that hand their operands on without reading them."""

PASSES_OPERANDS_ON = frozenset[Opcode]({"call", "conditional", "tuple", "while"})
"""Opcodes that hand operands on, or run instructions that are in the sequence themselves."""
