"""Values with an offset that stay in registers.

libtpu turns some fusions into pipelined loops after copy insertion. Their counters are untiled
scalars, unlike all other values on a TPU, and plans of libtpu 0.0.51 place them over one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.base.quantities import ValueId
    from hlomem.view.joined import JoinedDump

_BODY = "_pipelined_body"
_SCALAR = "s32[]"


def in_registers(joined: JoinedDump) -> frozenset[ValueId]:
    """The values that the loops of a pipelined fusion keep in registers."""
    has_pipelines = any(
        name.endswith(_BODY)
        for loop in joined.names_of_opcode.get("while", ())
        for names in joined.printed[loop].callees.values()
        for name in names
    )
    if not has_pipelines:
        return frozenset()
    return frozenset(placed.id for placed in joined.placed if placed.value.shape == _SCALAR)
