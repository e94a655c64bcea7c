"""The axes that split a value before a constraint says how, by the operations that compute it.

From a value back to arguments and other constraints, one dimension at a time: through operations,
calls, and what loops begin with or read. A dimension that is summed over is split no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.counting_indices import Scope
from hlomem.hlo.dimension_links import links_of
from hlomem.report.data.sharding.whole_program import carried, is_constraint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.sharding import Axis
    from hlomem.report.data.sharding.whole_program import WholeProgram, WholeValue

    Step = tuple[HloInstruction, tuple[HloInstruction, ...], int]

_MAX_SEEN = 400
_INDEXED = ("gather", "scatter")


def axes_before(whole: WholeProgram, value: WholeValue, dimension: int) -> tuple[Axis, ...]:
    """The axes that a dimension of a constraint's operand is split along where it comes from."""
    pending: list[Step] = [(value.instruction.operands[0], value.calls, dimension)]
    seen = set(pending)
    found: dict[Axis, None] = {}
    while pending and len(seen) < _MAX_SEEN:
        one, calls, at = pending.pop()
        if is_constraint(one) or (one.opcode == "parameter" and not calls):
            sharding = whole.sharding_of(one)
            rows = () if sharding is None else sharding.dimensions
            found.update(dict.fromkeys(rows[at] if at < len(rows) else ()))
            continue
        more = [step for step in _before(one, calls, at) if step not in seen]
        seen.update(more)
        pending += more
    return tuple(found)


def _before(one: HloInstruction, calls: tuple[HloInstruction, ...], at: int) -> Iterator[Step]:
    """The dimensions of other values that one of a value is made of."""
    if one.opcode == "parameter":
        if calls[-1].opcode == "call":
            yield calls[-1].operands[one.parameter_number], calls[:-1], at
    elif one.opcode == "get-tuple-element":
        if (start := carried(one, calls)) is not None:
            yield (*start, at)
    elif one.opcode == "call":
        yield one.called_computations[0].root, (*calls, one), at
    elif one.opcode not in _INDEXED and one.shape.is_array:
        for link in links_of(one, Scope()):
            for operand, its in zip(one.operands, link.operands, strict=False):
                if link.results[0] == at and its is not None:
                    yield operand, calls, its
