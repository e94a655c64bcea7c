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
    when_met,
    where,
)
from hlomem.history.computations.marks import (
    is_clone,
    is_derived,
    is_fused,
    is_own,
    is_partitioned,
    is_promoted,
    is_top_k_comparator,
)
from hlomem.history.computations.tpu_late import (
    find_asynchronous,
    find_flattened,
    find_fused_again,
    find_sunk,
    find_widened,
    is_copy_fusion,
)
from hlomem.history.names import split_number
from hlomem.history.rules import CITED, OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.history.evidence import Trace

_FIRST_CLONE = re.compile(r"[^.]*(?:\.(?!clone)[^.]*)*\.clone")
_BUILT = re.compile(r"(?:add|mul|ge|max|min|and|or)_[A-Z0-9]+|and|or|compare-less-than")
_SORT_COMPARATOR = "compare-value-and-index"  # merges the parts of a partitioned top-k
_MADE_BEFORE_FUSION = frozenset({"compare", "reduce_or_computation"})
"""Comparators for sorted scatters, reducers of bits."""
_SPLIT_REDUCER = ".reduce_sub_computation"
_SUM_OF_DOT = "scalar_add_computation"  # of a dot that became a reduction
_BITCAST_FUSION = "bitcast_fusion"
_FIRST_BUILT = 2

# Before fusion.


def _place_in_program(trace: Trace, _claims: Claims) -> Priority:
    return trace.place_in_program


def _is_built(trace: Trace) -> bool:
    return _BUILT.fullmatch(trace.numbered.base) is not None


def _place_in_builder(trace: Trace, _claims: Claims) -> Priority:
    """By number; the builder's start at 2, and a lower one replaces one that an older one had."""
    return trace.parameter_number < _FIRST_BUILT, trace.number


def _checks_indices(trace: Trace) -> bool:
    """Whether an expander of gathers or scatters made it (`CheckIndexValidity`)."""
    return _SPLIT_REDUCER in trace.name and trace.computation.root.opcode == "and"


def _is_sum_of_dot(trace: Trace) -> bool:
    return trace.is_derived and trace.numbered.base == _SUM_OF_DOT


def _is_cloned_early(trace: Trace) -> bool:
    """A first clone that converts (float normalization) or was cloned again (flattening)."""
    is_first = _FIRST_CLONE.fullmatch(trace.name) is not None
    return is_first and (trace.converts or trace.is_cloned_again)


def _is_of_custom_call(trace: Trace) -> bool:
    return trace.is_called_by("custom-call")


def _merges_top_k(trace: Trace) -> bool:
    return trace.name.startswith(_SORT_COMPARATOR)


def _find_gathers(claims: Claims) -> Iterator[Trace]:
    """The fusions around gathers and scatters, made before all others and so numbered first."""
    for body in sorted(filter(is_fused, claims.free), key=lambda trace: trace.number):
        if body.is_clone or body.name.startswith(_BITCAST_FUSION):
            continue
        opcodes = claims.traces.call_graph.bodies[body.computation].opcodes
        if opcodes.isdisjoint(("gather", "scatter")):
            break
        yield body


def _is_numbered_last(trace: Trace) -> bool:
    """Whether its number exceeds the entry's, so that a pass must have made it."""
    entry = trace.module.entry
    return trace is not entry and 0 < entry.number <= trace.number


def _is_split(trace: Trace) -> bool:
    return _SPLIT_REDUCER in trace.name and not _checks_indices(trace)


def _number_of_split(trace: Trace, _claims: Claims) -> Priority:
    return (split_number(trace.name.removesuffix(_SPLIT_REDUCER))[1],)


def _is_made_before_fusion(trace: Trace) -> bool:
    return trace.numbered.base in _MADE_BEFORE_FUSION


def _by_name(made: list[Trace], _claims: Claims) -> list[Trace]:
    return sorted(made, key=lambda trace: trace.numbered)


# Fusion.


def _when_numbered(trace: Trace, _claims: Claims) -> Priority:
    return (trace.number,)


def _is_around_bitcast(trace: Trace) -> bool:
    return trace.is_fused and trace.name.startswith(_BITCAST_FUSION)


def _fusion_number(body: Trace, claims: Claims) -> Priority:
    """The number of a fusion; a clone was made together with the others of its caller."""
    caller = body.caller
    if not body.is_clone or caller is None:
        return (body.number,)
    if caller.is_fused:
        return _fusion_number(caller, claims)
    siblings = (each for each in caller.callees if each.is_fused and not each.is_clone)
    return (min((sibling.number for sibling in siblings), default=-1),)


def _reduces_exchanged(trace: Trace) -> bool:
    """Whether it reduces what devices have exchanged, which is split after fusion."""
    return _SPLIT_REDUCER in trace.name and any(
        site.operands[0].opcode == "all-to-all" for site in trace.sites
    )


_DUMPS = "pass dumps of libtpu 0.0.51"
_V5E, _V6E, _7X = "libtpu-0.0.51/tpu-v5e", "libtpu-0.0.51/tpu-v6e", "libtpu-0.0.51/tpu-tpu7x"
_OLD = "libtpu-0.0.17/tpu-v5e"

_DERIVED = Stage(
    (
        Pass(
            "GatherExpander, ScatterExpander",
            CITED,
            "service/hlo_creation_utils.cc: MakeBinaryScalarComputation",
            f"{_V5E}/diffrax_fwd",
            find=where(_checks_indices),
            precedence=13,
            key=when_met,
        ),
        Pass(
            "dots that became reductions",
            OBSERVED,
            _DUMPS,
            "",
            find=where(_is_sum_of_dot),
            precedence=14,
            key=when_met,
        ),
        Pass(
            "AllReducePromotion",
            OBSERVED,
            _DUMPS,
            "",
            find=where(is_promoted),
            precedence=15,
            key=when_met,
        ),
        Pass(
            "float normalization, first flattening",
            OBSERVED,
            _DUMPS,
            "",
            find=where(_is_cloned_early),
            precedence=17,
            key=when_met,
        ),
        Pass(
            "simplifiers and rewriters",
            OBSERVED,
            _DUMPS,
            "",
            find=where(is_clone),
            precedence=18,
            key=when_met,
        ),
        Pass(
            "expanders",
            OBSERVED,
            _DUMPS,
            "",
            find=where(is_derived),
            precedence=19,
            key=when_met,
        ),
        Pass(
            "TopkRewriter",
            OBSERVED,
            _DUMPS,
            "",
            find=where(_is_of_custom_call),
            precedence=16,
            key=when_met,
        ),
        Pass(
            "mergers of a partitioned top-k",
            OBSERVED,
            _DUMPS,
            "",
            find=where(_merges_top_k),
            precedence=12,
            key=when_met,
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
        ),
        by_priority,
    ),
    Stage(
        (
            Pass(
                "expanders of linear algebra",
                OBSERVED,
                "hlo/builder/lib: CreateScalarComputation, CreateScalarComparisonComputation",
                "",
                find=where(_is_built),
                precedence=20,
                key=_place_in_builder,
            ),
        ),
        by_priority,
    ),
    Stage(
        (
            Pass(
                "SpmdPartitioner",
                OBSERVED,
                _DUMPS,
                "",
                find=where(is_partitioned),
                precedence=21,
            ),
        ),
        by_parameter_numbers,
    ),
    Stage(
        (
            Pass(
                "TopkDecomposer",
                OBSERVED,
                _DUMPS,
                "",
                find=where(is_top_k_comparator),
                precedence=12,
                key=when_met,
            ),
        ),
        by_parameter_numbers,
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
                "decomposers of collectives",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/m_gather_sharded",
                find=where(_is_numbered_last),
                precedence=22,
            ),
        ),
        by_number,
    ),
    Stage(
        (
            Pass(
                "splitters of reductions",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/gathers_and_scatters",
                find=where(_is_split),
                precedence=10,
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
                "splitters of exchanged reductions",
                OBSERVED,
                _DUMPS,
                "",
                find=where(_reduces_exchanged),
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
                "fusion of asynchronous collectives",
                OBSERVED,
                _DUMPS,
                "",
                find=find_fused_again,
                precedence=4,
            ),
            Pass(
                "fusion of copies",
                OBSERVED,
                _DUMPS,
                "",
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
