"""The passes of libtpu that make computations, in the order of its pipeline.

The TPU compiler is not public: the order is what its pass dumps show (docs/tpu-rules.md).
`TPU_PASSES` is the table; what its rows ask stands in `tpu_early.py` and, for those after fusion,
in `tpu_late.py`.
"""

from __future__ import annotations

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
    is_derived,
    is_first_top_k_comparator,
    is_fused,
    is_own,
    is_partitioned,
)
from hlomem.history.computations.partitioner import when_partitioned
from hlomem.history.computations.tpu_early import (
    SPLIT_REDUCER,
    by_expansion,
    by_name,
    find_gathers,
    find_strided,
    is_built,
    is_flattened_early,
    is_legalized,
    is_made_before_fusion,
    is_made_for_collective,
    is_made_for_complex,
    is_made_stable,
    is_partitioners_clone,
    is_split,
    number_of_split,
    place_in_program,
    sort_partitioned,
    sort_program,
    when_entered,
    when_flattened_early,
    when_made_for_complex,
    when_rewritten,
)
from hlomem.history.computations.tpu_late import (
    BITCAST_FUSION,
    find_asynchronous,
    find_flattened,
    find_sunk,
    find_widened,
    is_copy_fusion,
)
from hlomem.history.rules import CITED, OBSERVED

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace

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
    return SPLIT_REDUCER in trace.name and any(
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
            f"{_V5E}/top_k_and_products",
            find=where(is_derived),
            precedence=19,
            key=when_rewritten,
        ),
        Pass(
            "expander of stable sorts",
            OBSERVED,
            f"{_DUMPS}: tpu-stable-sort-expander",
            f"{_V6E}/sorts_and_sums",
            find=where(is_made_stable),
            precedence=11,
            key=when_met,
        ),
        Pass(
            "flattener of gathers and scatters",
            OBSERVED,
            f"{_DUMPS}: tpu_gather_scatter_flattener",
            f"{_V5P}/points_of_table",
            find=find_strided,
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
            find=where(is_flattened_early),
            precedence=13,
            key=when_flattened_early,
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
                key=place_in_program,
            ),
            Pass(
                "complex rewriter",
                OBSERVED,
                f"{_DUMPS}: X64_elimination",
                f"{_V5P}/complex_loop",
                find=where(is_made_for_complex),
                precedence=14,
                key=when_made_for_complex,
            ),
        ),
        sort_program,
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
                key=when_entered,
            ),
            Pass(
                "SpmdPartitioner: clones",
                OBSERVED,
                f"{_SPMD}: SpmdPartitioningVisitor; {_DUMPS}",
                f"{_V5P}/split_loop",
                find=where(is_partitioners_clone),
                precedence=12,
                key=when_partitioned,
            ),
        ),
        sort_partitioned,
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
                find=where(is_built),
                precedence=17,
            ),
        ),
        by_expansion,
    ),
    _DERIVED,
    Stage(
        (
            Pass(
                "gather and scatter normalizer",
                OBSERVED,
                _DUMPS,
                f"{_V5E}/m_gather_sharded",
                find=find_gathers,
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
                find=where(is_flattened_early),
                precedence=13,
                key=when_flattened_early,
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
                find=where(is_made_for_collective),
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
                find=where(is_legalized),
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
                find=where(is_split),
                precedence=16,
                key=number_of_split,
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
                find=where(is_made_before_fusion),
                precedence=11,
            ),
        ),
        by_name,
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
