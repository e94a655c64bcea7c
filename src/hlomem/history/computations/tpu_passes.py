"""The passes of libtpu that make computations, in the order of its pipeline.

The TPU compiler is not public: the order is what its pass dumps show (docs/tpu-rules.md).
`TPU_PASSES` is the table; above it stands what its rows ask, and in `tpu_late.py` what those after
fusion do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.history.computations.engine import (
    Claims,
    Pass,
    Priority,
    Stage,
    as_found,
    by_number,
    by_parameter_numbers,
    by_priority,
    in_text_order,
    sort_by_parameter_numbers,
    when_met,
    where,
)
from hlomem.history.computations.marks import (
    is_derived,
    is_first_top_k_comparator,
    is_fused,
    is_own,
    is_partitioned,
)
from hlomem.history.computations.partitioner import is_cloned_for_partitions, when_partitioned
from hlomem.history.computations.tpu_late import (
    BITCAST_FUSION,
    find_asynchronous,
    find_flattened,
    find_sunk,
    find_widened,
    is_copy_fusion,
    is_flattened_clone,
)
from hlomem.history.evidence import place_by_name
from hlomem.history.names import CLONE, split_number
from hlomem.history.rules import CITED, OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.history.evidence import Trace

_FIRST_CLONE = re.compile(r"[^.]*(?:\.(?!clone)[^.]*)*\.clone")
_BUILT = re.compile(r"(?:add|mul|ge|max|min|and|or)_[A-Z0-9]+|and|or|compare-less-than")
_MADE_BEFORE_FUSION = frozenset({"compare", "reduce_or_computation"})
"""Comparators for sorted scatters, reducers of bits."""
_SPLIT_REDUCER = ".reduce_sub_computation"
_STRIDED_INDICES = "multiply."

# Before fusion.


def _place_in_program(trace: Trace, _claims: Claims) -> Priority:
    return trace.place_in_program


def _is_made_for_complex(trace: Trace) -> bool:
    """True if it was cloned for both parts of complex numbers, in a module rewritten for them.

    Its computations have been made anew then, without numbers.
    """
    if trace.module.entry.number != 0 or not _FIRST_CLONE.fullmatch(trace.name):
        return False
    shape = trace.computation.root.shape
    parts = shape.elements if shape.is_tuple else ()
    is_pair = len(parts) == _PARTS and parts[0] == parts[1]
    return is_pair and trace.is_embedded and trace.original is None


def _when_made_for_complex(trace: Trace, _claims: Claims) -> Priority:
    """With its caller, which is rewritten after all that it calls itself."""
    last, _ = trace.site_in_flow[0].time_by_regions
    return 0, last, 1


_PARTS = 2


def _sort_program(made: list[Trace], claims: Claims) -> list[Trace]:
    """By number; a partitioned module was read anew, and lost those that were taken."""
    if claims.traces.is_partitioned:
        return sorted(made, key=lambda trace: trace.time_by_regions)
    return sorted(made, key=lambda trace: claims.priority(trace)[1:])


def _when_entered(trace: Trace, _claims: Claims) -> Priority:
    return *trace.time_by_regions, _LAST


_LAST = 1 << 62


def _sort_partitioned(made: list[Trace], claims: Claims) -> list[Trace]:
    """Computation by computation, each after what was cloned for it."""
    priorities = {trace: claims.priority(trace)[1:] for trace in made}
    return sort_by_parameter_numbers(in_text_order(made, claims), priorities)


def _is_built(trace: Trace) -> bool:
    return _BUILT.fullmatch(trace.numbered[0]) is not None


def _by_expansion(made: list[Trace], claims: Claims) -> list[Trace]:
    """Expander by expander, those of one expansion by number: each builder counts anew."""
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
"""The places of the expanders in the pipeline."""


def _checks_indices(trace: Trace) -> bool:
    """True if an expander of gathers or scatters made it (`CheckIndexValidity`)."""
    return _SPLIT_REDUCER in trace.name and trace.computation.root.opcode == "and"


def _when_rewritten(trace: Trace, claims: Claims) -> Priority:
    """As the operations that apply it are met; those of one fusion as in the program."""
    (met,) = when_met(trace, claims)
    if not trace.is_embedded:
        return met, -1
    caller, position = trace.site_in_flow
    (caller_met,) = when_met(caller, claims) if caller is not caller.module.entry else (_LAST,)
    is_own = trace.is_clone and trace.region >= 0
    place = place_by_name(trace.name.partition(CLONE)[0]) if is_own else (-1, -1)
    return caller_met, position, *place, met


def _find_strided(claims: Claims) -> Iterator[Trace]:
    """Reducers that add up indices times strides, each with the check that is made after it.

    The program knows no `multiply`; parameters are numbered as they are made.
    """
    checks = {trace.parameter_number: trace for trace in claims.free if _checks_indices(trace)}
    for trace in claims.free:
        if _SPLIT_REDUCER in trace.name and trace.name.startswith(_STRIDED_INDICES):
            yield trace
            check = checks.get(max(trace.parameter_number, 0) + 1)
            if check is not None:
                yield check


def _is_made_stable(trace: Trace) -> bool:
    """True if it was cloned to compare places as well, where values are equal."""
    return trace.is_clone and trace.is_called_by("sort") and not is_flattened_clone(trace)


def _is_flattened_early(trace: Trace) -> bool:
    """True if the first flattening of the call graph made it, which copies what stays in use."""
    return trace.original is not None


def _when_flattened_early(trace: Trace, claims: Claims) -> Priority:
    """By the age of the original; clones that convert, or were cloned again, before the others."""
    assert trace.original is not None
    is_first = _FIRST_CLONE.fullmatch(trace.name) is not None
    is_older = is_first and (trace.converts or trace.is_cloned_again)
    age = claims.priority(trace.original)
    return not is_older, *age, trace.original.number, trace.number, *when_met(trace, claims)


def _find_gathers(claims: Claims) -> Iterator[Trace]:
    """The fusions around gathers and scatters, made before all others and so numbered first."""
    for body in sorted(filter(is_fused, claims.free), key=lambda trace: trace.number):
        if body.is_clone or body.name.startswith(BITCAST_FUSION):
            continue
        opcodes = claims.traces.call_graph.bodies[body.computation].opcodes
        if opcodes.isdisjoint(("gather", "scatter")):
            break
        yield body


def _is_made_for_collective(trace: Trace) -> bool:
    """True if its number exceeds the entry's, or it adds `x` and `y` as the partitioner's do.

    The program has no such parameters, and the partitioner itself clones what it makes.
    """
    entry, parameter = trace.module.entry, trace.parameter
    if trace.module.is_partitioned and parameter is not None and parameter.base == "x":
        return trace.is_embedded
    return trace is not entry and 0 < entry.number <= trace.number and not trace.is_derived


def _is_legalized(trace: Trace) -> bool:
    """True if it reduces four narrow numbers at once, each shifted out of a word."""
    return is_cloned_for_partitions(trace) and any(
        inner.opcode == "shift-right-logical" for inner in trace.computation.instructions
    )


def _is_partitioners_clone(trace: Trace) -> bool:
    """True if the partitioner cloned it, and it is not a copy of such a clone."""
    return is_cloned_for_partitions(trace) and not is_flattened_clone(trace)


def _is_split(trace: Trace) -> bool:
    return _SPLIT_REDUCER in trace.name and not _checks_indices(trace)


def _number_of_split(trace: Trace, _claims: Claims) -> Priority:
    return (split_number(trace.name.removesuffix(_SPLIT_REDUCER))[1],)


def _is_made_before_fusion(trace: Trace) -> bool:
    return trace.numbered[0] in _MADE_BEFORE_FUSION


def _by_name(made: list[Trace], _claims: Claims) -> list[Trace]:
    return sorted(made, key=lambda trace: trace.numbered)


# Fusion.


def _when_numbered(trace: Trace, _claims: Claims) -> Priority:
    return (trace.number,)


def _is_around_bitcast(trace: Trace) -> bool:
    return trace.is_fused and trace.name.startswith(BITCAST_FUSION)


def _fusion_number(body: Trace, claims: Claims) -> Priority:
    """The number of a fusion; a clone was made together with the others of its caller."""
    caller = body.caller
    if not body.is_clone or caller is None:
        return (body.number,)
    if caller.is_fused:
        return _fusion_number(caller, claims)
    siblings = (body for body in caller.callees if body.is_fused and not body.is_clone)
    return (min((sibling.number for sibling in siblings), default=-1),)


def _is_normalized_last(trace: Trace) -> bool:
    """True if it reduces what fusion left alone: what devices have exchanged, or a bitcast."""
    return _SPLIT_REDUCER in trace.name and any(
        site.operands[0].opcode in ("all-to-all", "bitcast") for site in trace.sites
    )


_DUMPS = "pass dumps of libtpu 0.0.51"
_V5E, _V6E, _7X = "libtpu-0.0.51/tpu-v5e", "libtpu-0.0.51/tpu-v6e", "libtpu-0.0.51/tpu-tpu7x"
_OLD = "libtpu-0.0.17/tpu-v5e"
_V5P = "libtpu-0.0.51/tpu-v5p"
_FLATTENING = "hlo/transforms/simplifiers/flatten_call_graph.cc: RunImpl"
_SPMD = "service/spmd/spmd_partitioner.cc"

_DERIVED = Stage(
    (
        Pass(
            "simplifiers, rewriters and other expanders",
            OBSERVED,
            _DUMPS,
            f"{_V6E}/h_switch_in_scan",
            find=where(is_derived),
            precedence=19,
            key=_when_rewritten,
        ),
        Pass(
            "expander of stable sorts",
            OBSERVED,
            f"{_DUMPS}: tpu-stable-sort-expander",
            f"{_V5E}/top_k_loop",
            find=where(_is_made_stable),
            precedence=11,
            key=when_met,
        ),
        Pass(
            "flattener of gathers and scatters",
            OBSERVED,
            f"{_DUMPS}: tpu_gather_scatter_flattener",
            f"{_V5P}/sampling",
            find=_find_strided,
            precedence=10,
            key=when_met,
        ),
        Pass(
            "first flattening",
            OBSERVED,
            f"{_FLATTENING}; {_DUMPS}",
            f"{_V5E}/large_loop",
            chips="all but 7x",
            option="not flattens_calls_late",
            find=where(_is_flattened_early),
            precedence=13,
            key=_when_flattened_early,
        ),
    ),
    by_parameter_numbers,
)

TPU_PASSES = (
    Stage(
        (
            Pass(
                "the program",
                CITED,
                "service/name_uniquer.cc: GetUniqueName",
                f"{_V5E}/embed_scatter_add",
                find=where(is_own),
                precedence=23,
                key=_place_in_program,
            ),
            Pass(
                "complex rewriter",
                OBSERVED,
                f"{_DUMPS}: X64_elimination",
                f"{_V5P}/complex_loop",
                find=where(_is_made_for_complex),
                precedence=14,
                key=_when_made_for_complex,
            ),
        ),
        _sort_program,
    ),
    Stage(
        (
            Pass(
                "SpmdPartitioner",
                OBSERVED,
                f"{_SPMD}: SpmdPartitioningVisitor (`_spmd`); {_DUMPS}",
                f"{_V5P}/split_loop",
                find=where(is_partitioned),
                precedence=18,
                key=_when_entered,
            ),
            Pass(
                "SpmdPartitioner: clones",
                OBSERVED,
                f"{_SPMD}: SpmdPartitioningVisitor; {_DUMPS}",
                f"{_V5P}/split_scatters",
                find=where(_is_partitioners_clone),
                precedence=12,
                key=when_partitioned,
            ),
        ),
        _sort_partitioned,
    ),
    Stage(
        (
            Pass(
                "TopkDecomposer",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/top_k_and_products",
                find=where(is_first_top_k_comparator),
                precedence=12,
                key=when_met,
            ),
        ),
        by_parameter_numbers,
    ),
    Stage(
        (
            Pass(
                "expanders of linear algebra",
                OBSERVED,
                "hlo/builder/lib: CreateScalarComputation, CreateScalarComparisonComputation",
                f"{_V5E}/triangle",
                find=where(_is_built),
                precedence=17,
            ),
        ),
        _by_expansion,
    ),
    _DERIVED,
    Stage(
        (
            Pass(
                "gather and scatter normalizer",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/m_gather_sharded",
                find=_find_gathers,
                precedence=7,
            ),
        ),
        as_found,
    ),
    Stage(
        (
            Pass(
                "first flattening, later",
                OBSERVED,
                f"{_FLATTENING}; {_DUMPS}",
                f"{_7X}/cholesky_solve",
                chips="7x",
                option="flattens_calls_late",
                find=where(_is_flattened_early),
                precedence=13,
                key=_when_flattened_early,
            ),
        ),
        by_parameter_numbers,
    ),
    Stage(
        (
            Pass(
                "decomposers of collectives",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/m_gather_sharded",
                find=where(_is_made_for_collective),
                precedence=18,
            ),
        ),
        by_number,
    ),
    Stage(
        (
            Pass(
                "legalizer of all-reduces",
                OBSERVED,
                f"{_DUMPS}: tpu-all-reduce-legalizer",
                f"{_V5P}/split_statistics",
                find=where(_is_legalized),
                precedence=4,
                key=when_met,
            ),
        ),
        by_priority,
    ),
    Stage(
        (
            Pass(
                "splitters of reductions",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/gathers_and_scatters",
                find=where(_is_split),
                precedence=16,
                key=_number_of_split,
            ),
        ),
        by_parameter_numbers,
    ),
    Stage(
        (
            Pass(
                "comparators of sorted scatters, reducers of bits",
                OBSERVED,
                _DUMPS,
                f"{_7X}/embed_scatter_add",
                find=where(_is_made_before_fusion),
                precedence=11,
            ),
        ),
        _by_name,
    ),
    Stage(
        (
            Pass(
                "fusion",
                OBSERVED,
                _DUMPS,
                f"{_V6E}/recsys",
                find=where(is_fused),
                precedence=9,
                key=_fusion_number,
            ),
            Pass(
                "fusion of bitcasts",
                OBSERVED,
                _DUMPS,
                f"{_V6E}/h_switch_in_scan",
                find=where(_is_around_bitcast),
                precedence=8,
                key=_fusion_number,
            ),
            Pass(
                "copy normalizer, after fusion",
                OBSERVED,
                f"{_DUMPS}: tpu-copy-normalizer of multi_output_fusion_and_bf16_folding",
                f"{_V5E}/sharded_top_k",
                find=where(_is_normalized_last),
                precedence=0,
            ),
            Pass(
                "loop-invariant code motion",
                OBSERVED,
                f"{_DUMPS}; service/while_util.cc: WidenWhileBody (`wide.`)",
                f"{_OLD}/nested_while",
                find=find_widened,
                precedence=1,
            ),
            Pass(
                "constant sinking",
                OBSERVED,
                f"{_DUMPS}; service/while_loop_constant_sinking.cc (`.sunk`)",
                f"{_OLD}/nested_while",
                find=find_sunk,
                precedence=2,
            ),
            Pass(
                "last flattening",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/g_scan_grad",
                find=find_flattened,
                precedence=3,
            ),
            Pass(
                "fusion of copies",
                OBSERVED,
                _DUMPS,
                f"{_7X}/nested_while",
                find=where(is_copy_fusion),
                precedence=5,
                key=_when_numbered,
            ),
            Pass(
                "asynchronous operations",
                OBSERVED,
                _DUMPS,
                f"{_V6E}/recsys",
                find=find_asynchronous,
                precedence=6,
            ),
        ),
        by_priority,
    ),
)
