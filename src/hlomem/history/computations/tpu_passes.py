"""The passes of libtpu that make computations, in the order of its pipeline.

The TPU compiler is not public: the order is what its pass dumps show (docs/tpu-rules.md).
`TPU_PASSES` is the table; what its rows ask stands in `tpu_early.py` and, for those after fusion,
in `tpu_late.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations import engine, marks
from hlomem.history.computations import tpu_early as early
from hlomem.history.computations import tpu_late as late
from hlomem.history.computations.engine import Claims, Mark, Pass, Priority, stage, when_met, where
from hlomem.history.computations.partitioner import when_partitioned
from hlomem.history.computations.tpu_late import merged_fusions
from hlomem.history.rules import cited, fitted, observed
from hlomem.history.tables import SearchLimit, Tables, Vanishing

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace


# Fusion.


def _when_numbered(trace: Trace, _claims: Claims) -> Priority:
    return (trace.number,)


def _is_around_bitcast(trace: Trace) -> bool:
    return trace.is_fused and trace.name.startswith(late.BITCAST_FUSION)


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
    return early.SPLIT_REDUCER in trace.name and any(
        site.operands[0].opcode in ("all-to-all", "bitcast") for site in trace.sites
    )


_DUMPS = "pass dumps of libtpu 0.0.51"
_V5E, _V6E, _7X = "libtpu-0.0.51/tpu-v5e", "libtpu-0.0.51/tpu-v6e", "libtpu-0.0.51/tpu-tpu7x"
_OLD = "libtpu-0.0.17/tpu-v5e"
_V5P = "libtpu-0.0.51/tpu-v5p"
_FLATTENING = "hlo/transforms/simplifiers/flatten_call_graph.cc: RunImpl"
_SPMD = "service/spmd/spmd_partitioner.cc"

_DERIVED = stage(
    engine.by_parameter_numbers,
    Pass(
        "expanders of gathers and scatters",
        observed(f"{_DUMPS}: scatter_expander", f"{_V5E}/reducers_of_passes"),
        mark=Mark(18, where(early.checks_indices), early.when_rewritten),
    ),
    Pass(
        "AlgebraicSimplifier: products that become sums",
        observed(f"{_DUMPS}: algsimp, before tpu-reduce-rewriter", f"{_V5E}/reducers_of_passes"),
        mark=Mark(18, where(early.is_product), early.when_rewritten),
    ),
    Pass(
        "simplifiers, rewriters and other expanders",
        observed(_DUMPS, f"{_V5E}/reducers_of_passes"),
        mark=Mark(19, where(marks.is_derived), early.when_rewritten),
    ),
    Pass(
        "expander of stable sorts",
        observed(f"{_DUMPS}: tpu-stable-sort-expander", f"{_V6E}/sorts_and_sums"),
        mark=Mark(11, where(early.is_made_stable), when_met),
    ),
    Pass(
        "flattener of gathers and scatters",
        observed(f"{_DUMPS}: tpu_gather_scatter_flattener", f"{_V5P}/points_of_table"),
        mark=Mark(10, early.find_strided, when_met),
    ),
    Pass(
        "first flattening",
        observed(f"{_FLATTENING}; {_DUMPS}", f"{_V5E}/large_loop"),
        mark=Mark(13, where(early.is_flattened_early), early.when_flattened_early),
        chips="all but 7x",
        option="not flattens_calls_late",
    ),
)

TPU_PASSES = (
    stage(
        early.sort_program,
        Pass(
            "the program",
            cited("service/name_uniquer.cc: GetUniqueName", f"{_V5E}/embed_scatter_add"),
            mark=Mark(23, where(marks.is_own), early.place_in_program),
        ),
        Pass(
            "complex rewriter",
            observed(f"{_DUMPS}: X64_elimination", f"{_V5P}/complex_loop"),
            mark=Mark(14, where(early.is_made_for_complex), early.when_made_for_complex),
        ),
    ),
    stage(
        early.sort_partitioned,
        Pass(
            "SpmdPartitioner",
            observed(f"{_SPMD}: SpmdPartitioningVisitor (`_spmd`); {_DUMPS}", f"{_V5P}/split_loop"),
            mark=Mark(18, where(marks.is_partitioned), early.when_entered),
        ),
        Pass(
            "SpmdPartitioner: clones",
            observed(f"{_SPMD}: SpmdPartitioningVisitor; {_DUMPS}", f"{_V5P}/split_loop"),
            mark=Mark(12, where(early.is_partitioners_clone), when_partitioned),
        ),
    ),
    stage(
        engine.as_found,
        Pass(
            "DynamicPadder",
            cited(
                "service/dynamic_padder.cc: RewriteDynamicReshapeCombineInput",
                f"{_V5E}/bounded_reshape",
            ),
            mark=Mark(0, where(early.is_made_for_bounds)),
        ),
    ),
    stage(
        engine.by_parameter_numbers,
        Pass(
            "TopkDecomposer",
            observed(_DUMPS, f"{_V5E}/top_k_and_products"),
            mark=Mark(12, where(marks.is_first_top_k_comparator), when_met),
        ),
    ),
    stage(
        early.by_expansion,
        Pass(
            "expanders of linear algebra",
            observed(
                "hlo/builder/lib: CreateScalarComputation, CreateScalarComparisonComputation",
                f"{_V5E}/triangle",
            ),
            mark=Mark(17, where(early.is_built)),
        ),
    ),
    _DERIVED,
    stage(
        engine.as_found,
        Pass(
            "gather and scatter normalizer",
            observed(_DUMPS, f"{_V5E}/m_gather_sharded"),
            mark=Mark(7, early.find_gathers),
        ),
    ),
    stage(
        engine.by_parameter_numbers,
        Pass(
            "first flattening, later",
            observed(f"{_FLATTENING}; {_DUMPS}", f"{_7X}/cholesky_solve"),
            mark=Mark(13, where(early.is_flattened_early), early.when_flattened_early),
            chips="7x",
            option="flattens_calls_late",
        ),
    ),
    stage(
        engine.by_number,
        Pass(
            "decomposers of collectives",
            observed(_DUMPS, f"{_V5E}/m_gather_sharded"),
            mark=Mark(18, where(early.is_made_for_collective)),
        ),
    ),
    stage(
        engine.by_priority,
        Pass(
            "legalizer of all-reduces",
            observed(f"{_DUMPS}: tpu-all-reduce-legalizer", f"{_V5P}/split_statistics"),
            mark=Mark(4, where(early.is_legalized), when_met),
        ),
    ),
    stage(
        engine.by_parameter_numbers,
        Pass(
            "splitters of reductions",
            observed(_DUMPS, f"{_V5E}/gathers_and_scatters"),
            mark=Mark(16, where(early.is_split), early.number_of_split),
        ),
    ),
    stage(
        early.by_name,
        Pass(
            "comparators of sorted scatters, reducers of bits",
            observed(_DUMPS, f"{_7X}/embed_scatter_add"),
            mark=Mark(11, where(early.is_made_before_fusion)),
        ),
    ),
    stage(
        engine.by_priority,
        Pass(
            "fusion",
            observed(_DUMPS, f"{_V6E}/recsys"),
            mark=Mark(9, where(marks.is_fused), _fusion_number),
        ),
        Pass(
            "fusion of bitcasts",
            observed(_DUMPS, f"{_V6E}/h_switch_in_scan"),
            mark=Mark(8, where(_is_around_bitcast), _fusion_number),
        ),
        Pass(
            "copy normalizer, after fusion",
            observed(
                f"{_DUMPS}: tpu-copy-normalizer of multi_output_fusion_and_bf16_folding",
                f"{_V5E}/sharded_top_k",
            ),
            mark=Mark(0, where(_is_normalized_last)),
        ),
        Pass(
            "loop-invariant code motion",
            observed(
                f"{_DUMPS}; service/while_util.cc: WidenWhileBody (`wide.`)", f"{_OLD}/nested_while"
            ),
            mark=Mark(1, late.find_widened),
        ),
        Pass(
            "constant sinking",
            observed(
                f"{_DUMPS}; service/while_loop_constant_sinking.cc (`.sunk`)",
                f"{_OLD}/nested_while",
            ),
            mark=Mark(2, late.find_sunk),
        ),
        Pass(
            "last flattening",
            observed(_DUMPS, f"{_V5E}/g_scan_grad"),
            mark=Mark(3, late.find_flattened),
        ),
        Pass(
            "fusion of copies",
            observed(_DUMPS, f"{_7X}/nested_while"),
            mark=Mark(5, where(late.is_copy_fusion), _when_numbered),
        ),
        Pass(
            "asynchronous operations",
            observed(_DUMPS, f"{_V6E}/recsys"),
            mark=Mark(6, late.find_asynchronous),
        ),
    ),
)


TABLES = Tables(
    stages=TPU_PASSES,
    vanishing=(
        Vanishing(
            "producers taken into fusions with several results",
            observed(
                "pass dumps of libtpu 0.0.51: tpu_fusion of multi_output_fusion_and_bf16_folding",
                "libtpu-0.0.51/tpu-v5p/branches_with_rows",
            ),
            find=merged_fusions,
        ),
    ),
    limits=(
        SearchLimit(
            "computations that are gone",
            fitted(
                "online_topsort.h; every loop is cloned several times before the last clone stays",
                "libtpu-0.0.51/tpu-tpu7x/nested_while",
            ),
            delta=16,
        ),
    ),
)
