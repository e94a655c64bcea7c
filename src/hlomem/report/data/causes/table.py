"""The table of causes: what is looked for, in which order.

A cause that stands higher has the first word about bytes it shows. Each row says which causes
explain it away: with another split over devices, a dimension of an argument is another, and that is
not another batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

from hlomem.report.data.causes.cause import CauseKind, Finding
from hlomem.report.data.causes.dimensions import find_dimensions, find_inner_dimensions
from hlomem.report.data.causes.donation import find_donation
from hlomem.report.data.causes.dtypes import find_casts, find_dtypes, find_inner_dtypes
from hlomem.report.data.causes.fusions import find_fusions
from hlomem.report.data.causes.layers import find_layers
from hlomem.report.data.causes.layouts import find_layouts
from hlomem.report.data.causes.loops import find_loops
from hlomem.report.data.causes.offload import find_offload
from hlomem.report.data.causes.recomputation import find_recomputation
from hlomem.report.data.causes.sharding import find_sharding
from hlomem.report.data.causes.versions import find_backends, find_recompiled, find_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.report.data.causes.comparison import Comparison


class Row(NamedTuple):
    """A finder, and the kinds of findings after which it is not asked."""

    find: Callable[[Comparison], Iterator[Finding]]
    unless: frozenset[str] = frozenset()
    of_operations: bool = False
    """Whether it compares operations and arguments alone, which programs of one text share."""


_EVERYTHING = frozenset(get_args(CauseKind))
_SIZES = frozenset({"sharding", "loop", "layers", "batch", "sequence", "width"})

TABLE = (
    Row(find_backends),
    Row(find_donation),
    Row(find_offload),
    Row(find_sharding),
    Row(find_layers, frozenset({"sharding"}), of_operations=True),
    Row(find_dimensions, frozenset({"sharding"})),
    Row(find_dtypes, of_operations=True),
    Row(find_casts, frozenset({"dtype", "backend"}), of_operations=True),
    # What follows claims all of a role, which those above know better.
    Row(find_recomputation, of_operations=True),
    Row(find_loops, frozenset({"sharding"}), of_operations=True),
    Row(find_layouts, _SIZES | {"dtype", "backend"}),
    Row(find_versions, frozenset({"backend"})),
    Row(find_inner_dtypes, _EVERYTHING, of_operations=True),
    Row(find_fusions, _EVERYTHING),
    Row(find_inner_dimensions, _EVERYTHING),
    Row(find_recompiled, _EVERYTHING),
)


def find_all(comparison: Comparison) -> list[Finding]:
    """The differences between the programs, in the order of the table."""
    found: list[Finding] = []
    for row in TABLE:
        if row.of_operations and comparison.is_same_text:
            continue
        if row.unless.isdisjoint(finding.kind for finding in found):
            found += row.find(comparison)
    return found
