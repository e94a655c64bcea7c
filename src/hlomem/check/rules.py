"""Every rule of the checker, in one sentence: what is wrong. `docs/verifier.md` says more."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES: Mapping[str, str] = MappingProxyType(
    {
        "geometry/negative-offset": "a value begins before its allocation",
        "geometry/negative-size": "a value or allocation has less than no bytes",
        "geometry/out-of-bounds": "a value ends behind its allocation",
        "geometry/misaligned": "an offset is no multiple of the backend's alignment",
        "geometry/size-not-of-shape": "a value is not as large as its shape",
        "geometry/unreadable-shape": "a shape is none, or too large to have a size",
        "geometry/color-differs": "value and allocation are of different memory spaces",
        "geometry/color-not-of-layout": "the color is not the memory space of the layout",
        "completeness/allocation-number": "allocations are not numbered one after another",
        "completeness/no-place": "a used or live value is in no allocation",
        "completeness/two-places": "a value is in two places",
        "completeness/two-values-of-one-name": "two values are the same part of one instruction",
        "completeness/unknown-value": "a value in an allocation is not among the used values",
        "completeness/value-differs": "two lists give one id different names, colors or kinds",
        "completeness/listed-twice": "a used value, live range or step stands twice",
        "completeness/no-live-range": "an instruction runs, but its value has no live range",
        "ownership/read-only": "a constant, or an argument that is not donated, is written",
        "ownership/constant": "a constant is in no constant allocation, or shares bytes",
        "ownership/parameter": "an argument is not where the header of an allocation says",
        "ownership/output": "what is returned does not lie in memory that outlives the program",
        "ownership/thread-local": "a scheduled value is thread-local, or one that is not is shared",
        "totals/total-bytes": "the total is not the sum of the allocations",
        "totals/report": "a usage report does not add up",
        "totals/peak": "the peak is not what live ranges and shapes make it",
        "totals/sequence-length": "the sequence is not as long as its head says",
        "alias/torn": "values that must share storage do not lie at one place",
        "alias/donation-differs": "an output and the argument donated for it differ",
        "alias/lost-donation": "an output does not lie in the argument that was donated for it",
        "live/impossible-range": "a live range ends before it starts, or outside the sequence",
        "live/not-in-sequence": "a value is alive whose instruction never runs",
        "live/starts-late": "a value is defined before its live range starts",
        "live/ends-early": "a value is needed after its live range has ended",
        "live/overwritten": "a value is read after another was written over it",
        "flow/no-value": "a value of the module is not in the dump",
        "flow/unknown-value": "a value of the dump is not in the module",
        "flow/shape-differs": "a value has another shape than its instruction",
        "flow/position-missing": "a value appears where the dump does not list it",
        "flow/position-unknown": "a value is listed where it does not appear",
        "flow/use-missing": "a value is read where the dump does not list it",
        "flow/use-unknown": "a value is listed as read where it is not",
        "order/used-before-defined": "a value is needed before its instruction runs",
        "order/data-dependence": "an instruction runs before one it reads",
        "order/control-dependence": "an instruction runs before one it waits for",
        "order/missing": "an instruction of the module is not in the sequence",
        "order/nesting": "what an instruction runs does not stand directly before it",
        "interference/overlap": "two values that live at the same time share bytes",
        "interference/touch": "a value begins where another ends, but is not written in place",
        "interference/touch-partial": "a value is written in place at another slice",
        "interference/concat-piece": "a piece of a concatenation is not at its place",
        "interference/in-place-fusion": "a fusion reads what it may have overwritten",
    }
)
