"""The checker's own tables of opcodes, independent of the planner's (`hlomem.hlo.opcodes`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hlomem.hlo.opcodes import Opcode

if TYPE_CHECKING:
    from collections.abc import Mapping


def _opcodes(names: str) -> frozenset[Opcode]:
    return frozenset(cast("list[Opcode]", names.split()))


READS_ELSEWHERE = _opcodes(
    """
    all-gather all-gather-start all-to-all batch-norm-grad batch-norm-inference
    batch-norm-training broadcast cholesky concatenate constant convolution copy dot
    dynamic-slice fft gather iota pad parameter ragged-all-to-all ragged-dot reduce
    reduce-scatter reduce-window reverse rng-bit-generator scaled-dot select-and-scatter slice
    topk transpose tuple
    """
)
"""Opcodes that read other elements of an operand than they write."""

ONLY_INTO_OPERAND: Mapping[Opcode, int] = {
    "dynamic-update-slice": 0,
    "set-dimension-size": 0,
    "triangular-solve": 1,
}
"""Opcodes whose result may overwrite only the operand of this number."""

SAME_PLACE = _opcodes(
    """
    abs acos acosh add add-dependency and asin asinh atan2 atanh cbrt ceil clamp compare complex
    convert copy cosine cosh count-leading-zeros divide erf exponential exponential-minus-one
    floor imag is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not
    opt-barrier or popcnt power real reduce-precision remainder round-nearest-afz
    round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign
    sine sinh sqrt stochastic-convert subtract tan tanh xor
    """
)
"""Opcodes that read only the element they write, of each operand."""

SAME_BYTES = frozenset[Opcode]({"bitcast", "bitcast-convert", "reshape", "tuple"})
"""Opcodes that only rename or reshape their operands' bytes."""

SLICES = frozenset[Opcode]({"dynamic-slice", "slice"})
"""Opcodes that read a window of their operand."""

KEEPS_NUMBER = frozenset[Opcode]({"bitcast", "convert", "copy", "reshape"})
"""Opcodes that keep the value of a scalar."""

RUNS_OTHERS = frozenset[Opcode]({"async-start", "async-update", "call", "conditional", "while"})

BINDS_OPERANDS = frozenset[Opcode]({"async-start", "async-update"})
"""Opcodes that bind operands of an asynchronous computation."""

READS_TOP_LEVEL = frozenset[Opcode]({"copy", "get-tuple-element"})
"""Opcodes that read a tuple's table, not its elements."""

READS_NOTHING = frozenset[Opcode]({"domain", "tuple"})
"""Opcodes that forward their operands without reading them."""

PASSES_OPERANDS_ON = frozenset[Opcode]({"call", "conditional", "tuple", "while"})
"""Opcodes that forward operands, or run instructions of the sequence."""
