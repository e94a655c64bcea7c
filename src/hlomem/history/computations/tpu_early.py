"""Computations that libtpu makes before fusion: of the program, for partitions, by expanders.

In: traces and claims. Out: who made them, and the keys by which each pass went. Read off the pass
dumps of libtpu (docs/tpu-rules.md); `tpu_passes.py` holds the table that asks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.history.computations.engine import in_text_order, sort_by_parameter_numbers, when_met
from hlomem.history.computations.marks import is_fused
from hlomem.history.computations.partitioner import is_cloned_for_partitions
from hlomem.history.computations.tpu_late import BITCAST_FUSION, is_flattened_clone
from hlomem.history.evidence import Trace, place_by_name
from hlomem.history.names import CLONE
from hlomem.hlo.names import split_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.history.computations.engine import Claims, Priority

_FIRST_CLONE = re.compile(r"[^.]*(?:\.(?!clone)[^.]*)*\.clone")
_BUILT = re.compile(r"(?:add|mul|ge|max|min|and|or)_[A-Z0-9]+|and|or|compare-less-than")
_MADE_BEFORE_FUSION = frozenset({"compare", "reduce_or_computation"})
"""Comparators for sorted scatters, reducers of bits."""
SPLIT_REDUCER = ".reduce_sub_computation"
_STRIDED_INDICES = "multiply."


def place_in_program(trace: Trace, _claims: Claims) -> Priority:
    """The key of the program's own: as it numbers them."""
    return trace.place_in_program


def is_made_for_complex(trace: Trace) -> bool:
    """True if it was cloned for both parts of complex numbers, in a module rewritten for them."""
    if trace.module.entry.number != 0 or not _FIRST_CLONE.fullmatch(trace.name):
        return False
    shape = trace.computation.root.shape
    parts = shape.elements if shape.is_tuple else ()
    is_pair = len(parts) == _PARTS and parts[0] == parts[1]
    return is_pair and trace.is_embedded and trace.original is None


def when_made_for_complex(trace: Trace, _claims: Claims) -> Priority:
    """With its caller, which is rewritten after all that it calls itself."""
    last, _ = trace.site_in_flow[0].time_by_regions
    return 0, last, 1


_PARTS = 2


def sort_program(made: list[Trace], claims: Claims) -> list[Trace]:
    """By number; a partitioned module was read again, and lost those that were taken."""
    if claims.traces.is_partitioned:
        return sorted(made, key=lambda trace: trace.time_by_regions)
    return sorted(made, key=lambda trace: claims.priority(trace)[1:])


def when_entered(trace: Trace, _claims: Claims) -> Priority:
    """The key of a computation that the partitioner made of one of the program's."""
    return *trace.time_by_regions, _LAST


_LAST = 1 << 62


def sort_partitioned(made: list[Trace], claims: Claims) -> list[Trace]:
    """Computation by computation, each after what was cloned for it."""
    priorities = {trace: claims.priority(trace)[1:] for trace in made}
    return sort_by_parameter_numbers(in_text_order(made, claims), priorities)


def is_built(trace: Trace) -> bool:
    """True if XLA's builder made it for an expander of linear algebra."""
    return _BUILT.fullmatch(trace.numbered[0]) is not None


def by_expansion(made: list[Trace], claims: Claims) -> list[Trace]:
    """Expander by expander, those of one expansion by number: each builder has its own counter."""
    met: dict[str, int] = {}
    for trace in made:
        (place,) = when_met(trace, claims)
        name = _expanded(trace)
        met[name] = min(place, met.get(name, place))

    def key(trace: Trace) -> Priority:
        name = _expanded(trace)
        expander = _EXPANDERS.get(name.rpartition("/")[2], len(_EXPANDERS))
        return expander, met[name], trace.number

    return sorted(made, key=key)


def _expanded(trace: Trace) -> str:
    """The name of the operation in the program that was expanded to what applies it."""
    return trace.application.op_name if trace.application else ""


_EXPANDED = ("cholesky", "geqrf", "householder_product", "lu", "eigh", "triangular_solve")
_EXPANDERS = {operation: place for place, operation in enumerate(_EXPANDED)}
"""The positions of the expanders in the pipeline."""


def checks_indices(trace: Trace) -> bool:
    """True if an expander of gathers or scatters made it (`CheckIndexValidity`)."""
    return SPLIT_REDUCER in trace.name and trace.computation.root.opcode == "and"


def when_rewritten(trace: Trace, claims: Claims) -> Priority:
    """As the operations that apply it are met; those of one fusion as in the program."""
    (met,) = when_met(trace, claims)
    if not trace.is_embedded:
        return met, -1
    caller, position = trace.site_in_flow
    (caller_met,) = when_met(caller, claims) if caller is not caller.module.entry else (_LAST,)
    is_own = trace.is_clone and trace.region >= 0
    place = place_by_name(trace.name.partition(CLONE)[0]) if is_own else (-1, -1)
    return caller_met, position, *place, met


def is_product(trace: Trace) -> bool:
    """True if a product of matrices became a sum of products with it."""
    return trace.name.startswith("scalar_add_computation") and not trace.is_clone


def find_strided(claims: Claims) -> Iterator[Trace]:
    """Reducers that add up indices times strides, each with the check that is made after it."""
    checks = {trace.parameter_number: trace for trace in claims.free if checks_indices(trace)}
    for trace in claims.free:
        if SPLIT_REDUCER in trace.name and trace.name.startswith(_STRIDED_INDICES):
            yield trace
            check = checks.get(max(trace.parameter_number, 0) + 1)
            if check is not None:
                yield check


def is_made_stable(trace: Trace) -> bool:
    """True if it was cloned to compare places as well, where values are equal."""
    return trace.is_clone and trace.is_called_by("sort") and not is_flattened_clone(trace)


def is_flattened_early(trace: Trace) -> bool:
    """True if the first flattening of the call graph made it, which copies what stays in use."""
    return trace.original is not None


def when_flattened_early(trace: Trace, claims: Claims) -> Priority:
    """By the age of the original; clones that convert, or were cloned again, before the others."""
    assert trace.original is not None
    is_first = _FIRST_CLONE.fullmatch(trace.name) is not None
    is_older = is_first and (trace.converts or trace.is_cloned_again)
    age = claims.priority(trace.original)
    return not is_older, *age, trace.original.number, trace.number, *when_met(trace, claims)


def find_gathers(claims: Claims) -> Iterator[Trace]:
    """The fusions around gathers and scatters, made before all others and so numbered first."""
    for body in sorted(filter(is_fused, claims.free), key=lambda trace: trace.number):
        if body.is_clone or body.name.startswith(BITCAST_FUSION):
            continue
        opcodes = claims.traces.call_graph.bodies[body.computation].opcodes
        if opcodes.isdisjoint(("gather", "scatter")):
            break
        yield body


def is_made_for_collective(trace: Trace) -> bool:
    """True if its number exceeds the entry's, or it adds `x` and `y` as the partitioner's do.

    The program has no such parameters, and the partitioner itself clones what it makes.
    """
    entry, parameter = trace.module.entry, trace.parameter
    if trace.module.is_partitioned and parameter is not None and parameter.base == "x":
        return trace.is_embedded
    return trace is not entry and 0 < entry.number <= trace.number and not trace.is_derived


def is_legalized(trace: Trace) -> bool:
    """True if it reduces four narrow numbers at once, each shifted out of a word."""
    return is_cloned_for_partitions(trace) and any(
        inner.opcode == "shift-right-logical" for inner in trace.computation.instructions
    )


def is_partitioners_clone(trace: Trace) -> bool:
    """True if the partitioner cloned it, and it is not a copy of such a clone."""
    return is_cloned_for_partitions(trace) and not is_flattened_clone(trace)


def is_split(trace: Trace) -> bool:
    """True if a reduction was split off together with it."""
    return SPLIT_REDUCER in trace.name and not checks_indices(trace)


def number_of_split(trace: Trace, _claims: Claims) -> Priority:
    """The key of such: the number of what is reduced."""
    return (split_number(trace.name.removesuffix(SPLIT_REDUCER))[1],)


def is_made_for_bounds(trace: Trace) -> bool:
    """True if it sorts what is inside of the bounds of an array to its front."""
    first = trace.computation.parameters[:1]
    return trace.numbered[0] == "compare" and bool(first) and first[0].name.startswith("lhs_key")


def is_made_before_fusion(trace: Trace) -> bool:
    """True if it compares for a sorted scatter, or reduces bits."""
    return trace.numbered[0] in _MADE_BEFORE_FUSION


def by_name(made: list[Trace], _claims: Claims) -> list[Trace]:
    """Their names, then the numbers in them."""
    return sorted(made, key=lambda trace: trace.numbered)
