"""The time of computing what a fusion does, where that is more than moving its bytes.

Random numbers take a hundred operations each. Narrow results take as long as wide ones. A place of
a window takes an address, a test of its bounds and a reading of the cache. Sums along columns that
XLA leaves to one kernel add one term after another.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import ELEMENTWISE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.orders.speeds import Speeds

_PLACE = 10
"""Operations of one place of a window."""
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})


def computing_time(
    body: HloComputation, needed: Mapping[HloInstruction, int], speeds: Speeds
) -> float:
    """Seconds of the computations of a fusion whose results need so many elements of each value."""
    of = speeds.arithmetic
    operations = sum(
        _each(part) * (_elements(part) if part.is_root else needed.get(part, 0))
        for part in body.instructions
    )
    terms = max(map(_terms, body.instructions), default=0)
    return max(operations / of.operations, _results(body.root) / of.results, terms * of.term)


def _each(part: HloInstruction) -> int:
    """Operations of one element."""
    if part.opcode == "reduce-window":
        window = part.attributes.get("window", "").partition("size=")[2].split(" ")[0].strip("{}")
        sizes = [int(size) for size in window.split("x") if size.isdecimal()]
        return _PLACE * prod(sizes)
    return 1 if part.opcode in ELEMENTWISE else 0


def _results(root: HloInstruction) -> int:
    """Results of each of so many threads that a kernel writes, several at once counted once."""
    while root.opcode == "bitcast":
        root = root.operands[0]
    if root.opcode == "tuple":
        return max(map(_results, root.operands), default=0)
    return 0 if root.opcode in _IN_PLACE else _elements(root)


def _terms(part: HloInstruction) -> int:
    """Terms of each sum, if its neighbours are those of other sums."""
    if part.opcode != "reduce":
        return 0
    operand = part.operands[0].shape.dimensions
    summed = part.integers("dimensions")
    if len(operand) - 1 in summed:
        return 0
    return prod(operand[dimension] for dimension in summed)


def _elements(part: HloInstruction) -> int:
    return max((prod(leaf.dimensions) for _, leaf in part.shape.leaves()), default=0)
