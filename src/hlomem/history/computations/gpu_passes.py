"""The passes of the GPU compiler that make computations, in the order of its pipeline.

Mirrors `service/gpu/gpu_compiler.cc: OptimizeHloModule` up to fusion; what comes since is in
`gpu_since_fusion.py`. `GPU_PASSES` is the table; above it stands what its rows ask.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from hlomem.history.computations import engine, marks
from hlomem.history.computations.engine import Claims, Mark, Pass, Priority, stage, when_met, where
from hlomem.history.computations.gpu_since_fusion import (
    FUSION,
    is_rematerialized,
    sort_by_time,
    synchronized_collectives,
)
from hlomem.history.computations.marks import calls_with_fusions
from hlomem.history.evidence import Trace, channel_of
from hlomem.history.names import CLONE
from hlomem.history.rules import cited, observed
from hlomem.history.tables import Tables, Vanishing
from hlomem.hlo.opcodes import COLLECTIVES
from hlomem.hlo.shape import ElementType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_SPLIT_SUM = re.compile(r"dot(?:\.[0-9]+)?\.reduce_sub_computation", re.ASCII)
_REGION = re.compile(r"(?:region_([0-9]+)|[a-z_]+)\.([0-9]+)", re.ASCII)
_MADE_BEFORE_FUSION = ("gemm_fusion_", "triton_softmax_")
_NOT_RENAMED = "fused_computation"
_MADE_BY_PASS = 1 << 62
_LARGEST_MADE_ONE = 128

# The program's own.


def _sort_own(own: list[Trace], _claims: Claims) -> list[Trace]:
    """By number; what lost its number (`region_4.0`) stands after the region before it.

    Regions are counted as they begin and numbered as they end, which is the same for all that call
    nothing.
    """
    places = {trace: trace.place_in_program for trace in own}
    leaves = [trace for trace in own if not trace.is_in_flow]
    before = 0
    for leaf in sorted(leaves, key=lambda trace: places[trace][1]):
        number, region = places[leaf]
        places[leaf] = number or before, region
        before = max(before, number)
    return sorted(own, key=places.__getitem__)


# Derived from others, before the call graph is flattened for the last time.


def _when_numbered(trace: Trace, _claims: Claims) -> Priority:
    return (trace.parameter_number,)


def _is_of_collective(trace: Trace) -> bool:
    return trace.is_clone and trace.is_called_by(*COLLECTIVES)


def _when_partitioned(trace: Trace, claims: Claims) -> Priority:
    """As the program is walked through, but all-reduces by their channels."""
    encounter = claims.once(_collectives_met).get(trace)
    met = when_met(trace, claims) if encounter is None else (encounter,)
    return *met, _channel(trace) or 0


def _collectives_met(claims: Claims) -> dict[Trace, int]:
    """The times at which the partitioner met all-reduces, in the order of their channels."""
    channels = {trace: _channel(trace) for trace in claims.made_by(_COLLECTIVE_CLONES)}
    counted = {trace: channel for trace, channel in channels.items() if channel is not None}
    encounter: dict[Trace, int] = {}
    earliest = _MADE_BY_PASS
    for trace in sorted(counted, key=counted.__getitem__, reverse=True):
        earliest = encounter[trace] = min(earliest, *when_met(trace, claims))
    return encounter


def _channel(trace: Trace) -> int | None:
    """The channel of an all-reduce: the partitioner counts them, and no pass renumbers these."""
    channels = (channel_of(site) for site in reversed(trace.sites) if site.opcode == "all-reduce")
    return next((channel for channel in channels if channel is not None), None)


def _is_stable_comparator(trace: Trace) -> bool:
    """True if `StableSortExpander` rebuilt a comparator and dropped the old one."""
    is_new = trace.is_clone and trace.original is None
    return is_new and trace.computation.root.shape.element_type is ElementType.PRED


def _calls(caller: Trace) -> list[Trace]:
    traces = caller.module
    return [traces[callee] for callee in calls_with_fusions(caller.computation, traces)]


def _is_product_sum(trace: Trace) -> bool:
    return trace.is_derived and trace.name.startswith("scalar_add_computation")


# The last flattening.


def _is_flattened(trace: Trace) -> bool:
    """True if the last flattening cloned it.

    Loops were cloned before, with the functions they are in; those that are the same as another
    and not too large became one again (`HloComputationDeduplicator`).
    """
    if not trace.is_clone or _is_of_collective(trace):
        return False
    if not trace.is_in_flow:
        return not _is_stable_comparator(trace)
    if trace.is_called_by("conditional"):
        return CLONE not in trace.original_name
    original = trace.original
    return original is not None and (
        not original.is_cloned_again or _size(trace) <= _LARGEST_MADE_ONE
    )


def _size(trace: Trace) -> int:
    """The number of instructions of a computation before fusion, at most."""
    fused = [
        callee
        for instruction in trace.computation.instructions
        if instruction.opcode == "fusion"
        for callee in instruction.called_computations
    ]
    return sum(computation.instruction_count for computation in (trace.computation, *fused))


def _sort_flattened(clones: list[Trace], claims: Claims) -> list[Trace]:
    """By what they are clones of, callees first, each with the clones of what it calls."""
    derived = set(claims.made_in(_DERIVED))
    place_of = {trace.name: place for place, trace in enumerate(claims.older) if trace in derived}
    called_by = {clone: _cloned_with(clone, set(clones), place_of) for clone in clones}
    inner = set(itertools.chain.from_iterable(called_by.values()))
    outer = [clone for clone in clones if clone not in inner]
    priorities = {
        clone: (
            *max(_place_of_original(member, place_of) for member in (clone, *called_by[clone])),
            len(called_by[clone]),
            clone.number,
        )
        for clone in outer
    }
    order: dict[Trace, None] = {}
    for clone in engine.sort_by_parameter_numbers(outer, priorities):
        order |= dict.fromkeys([clone, *called_by[clone]])
    return list(order)


def _cloned_with(clone: Trace, clones: set[Trace], place_of: Mapping[str, int]) -> list[Trace]:
    """The clones of what it calls, in the order in which `FlattenCallGraph` makes them."""
    found: dict[Trace, None] = {}
    worklist = [clone] if clone.callees else []
    while worklist:
        called = [callee for callee in _calls(worklist.pop()) if callee in clones]
        called.sort(key=lambda callee: place_of.get(callee.original_name, -1))
        called = [callee for callee in called if callee not in found]
        worklist += called
        found.update(dict.fromkeys(called))
    return list(found)


def _place_of_original(clone: Trace, place_of: Mapping[str, int]) -> Priority:
    """Clones of the program's own come first, then those of what passes made."""
    name = clone.name
    while CLONE in name:
        name = name.rpartition(CLONE)[0]
        if name in place_of:
            return _MADE_BY_PASS, place_of[name]
    return _region_numbers(name)


def _region_numbers(name: str) -> Priority:
    """The numbers of the program's own computation that a name begins with."""
    match = _REGION.match(name)
    return (int(match[2]), int(match[1] or -1)) if match else (_MADE_BY_PASS,)


# Just before fusion.


def _is_split_sum(trace: Trace) -> bool:
    return _SPLIT_SUM.match(trace.name) is not None


def _is_product(body: Trace) -> bool:
    return (
        body.is_fused and body.name.startswith(_MADE_BEFORE_FUSION) and not is_rematerialized(body)
    )


def _is_converted(trace: Trace) -> bool:
    is_clone = trace.is_clone and not trace.is_in_flow and not trace.is_fused
    return is_clone and not _is_stable_comparator(trace) and trace.converts


def _by_region(trace: Trace, _claims: Claims) -> Priority:
    return *_region_numbers(trace.name), trace.parameter_number


def _is_sort_with_iota(body: Trace) -> bool:
    """True if `SortIotaFusion` made it, before what all other fusions go through."""
    is_custom = body.is_fused and body.name.startswith(_NOT_RENAMED)
    return is_custom and bool(body.callees) and body.computation.root.opcode == "sort"


# Since fusion.


def _find_asynchronous(claims: Claims) -> Iterable[Trace]:
    """The computations of asynchronous operations, and the bodies that were cloned into them."""
    found: list[Trace] = []
    for trace in claims.free:
        if trace.is_called_by("async-start"):
            found += [callee for callee in trace.callees if callee.is_fused and callee.is_clone]
            found.append(trace)
    return sorted(found, key=lambda trace: trace.parameter_number)


_COLLECTIVE_CLONES = "SpmdPartitioner: clones"
_FLATTENED = "FlattenCallGraph"
_GPU = "service/gpu/gpu_compiler.cc"
_TRANSFORMS = "backends/gpu/transforms"
_H200, _NEW = "jaxlib-0.11.2/gpu-h200", "jaxlib-0.12.0.1/gpu-h200"


_DERIVED = stage(
    engine.by_parameter_numbers,
    Pass(
        "TopkDecomposer",
        cited(f"{_GPU}: RunPreSPMDPartitionerPasses", f"{_NEW}/top_k_and_products"),
        mark=Mark(10, where(marks.is_first_top_k_comparator), _when_numbered),
    ),
    Pass(
        _COLLECTIVE_CLONES,
        observed(
            "service/spmd/spmd_partitioner.cc: SpmdPartitioningVisitor; channels of all-reduces",
            f"{_H200}/sharded_sorts",
        ),
        mark=Mark(11, where(_is_of_collective), _when_partitioned),
    ),
    Pass(
        "expanders and rewriters",
        cited(f"{_GPU}: RunOptimizationPasses", f"{_H200}/loops_in_functions"),
        mark=Mark(15, where(marks.is_derived), _when_numbered),
    ),
    Pass(
        "AlgebraicSimplifier",
        cited(
            "hlo/transforms/simplifiers/algebraic_simplifier.cc: GetOrCreateScalarAddComputation",
            f"{_NEW}/top_k_and_products",
        ),
        mark=Mark(13, where(_is_product_sum), _when_numbered),
    ),
)

GPU_PASSES = (
    stage(
        _sort_own,
        Pass(
            "the program",
            cited("service/name_uniquer.cc: GetUniqueName", f"{_H200}/cond_simple"),
            mark=Mark(6, where(marks.is_own)),
        ),
    ),
    stage(
        engine.by_parameter_numbers,
        Pass(
            "SpmdPartitioner",
            cited(
                "service/spmd/spmd_partitioner.cc: SpmdPartitioningVisitor (`_spmd`)",
                f"{_H200}/collectives_in_loop",
            ),
            mark=Mark(16, where(marks.is_partitioned)),
        ),
    ),
    _DERIVED,
    stage(
        _sort_flattened,
        Pass(
            _FLATTENED,
            cited(
                f"{_GPU}: RunLayoutAssignmentPasses; hlo/transforms/simplifiers/"
                "flatten_call_graph.cc, hlo_computation_deduplicator.cc: RunImpl",
                f"{_H200}/loops_in_functions",
            ),
            mark=Mark(9, where(_is_flattened)),
        ),
    ),
    stage(
        engine.by_parameter_number,
        Pass(
            "SplitkRewriter",
            cited(f"{_TRANSFORMS}/splitk_rewriter.cc: RunImpl", f"{_H200}/tf_scan_layers"),
            mark=Mark(8, where(_is_split_sum)),
        ),
    ),
    stage(
        engine.by_parameter_number,
        Pass(
            "GemmFusion, SoftmaxRewriterTriton",
            cited(f"{_GPU}: OptimizeHloPostLayoutAssignment", f"{_H200}/cond_simple"),
            mark=Mark(3, where(_is_product)),
        ),
    ),
    stage(
        engine.by_priority,
        Pass(
            "FloatNormalization",
            cited(f"{_GPU}: OptimizeHloPostLayoutAssignment", f"{_H200}/narrow_floats"),
            mark=Mark(7, where(_is_converted), _by_region),
        ),
    ),
    stage(
        engine.by_parameter_number,
        Pass(
            "SortIotaFusion",
            cited(f"{_TRANSFORMS}/sort_iota_fusion.cc: RunImpl", f"{_H200}/top_k_steps"),
            mark=Mark(4, where(_is_sort_with_iota)),
        ),
    ),
    stage(
        sort_by_time,
        Pass(
            FUSION,
            cited(
                f"{_GPU}: RunFusionPasses; service/name_uniquer.cc counts `param_0`",
                f"{_H200}/cond_simple",
            ),
            mark=Mark(5, where(marks.is_fused)),
        ),
        Pass(
            "FusionWrapper",
            cited(
                f"{_GPU}: RunPreSchedulingPasses; codegen/emitters/fusion_wrapper_base.cc: RunImpl",
                f"{_NEW}/sorts_in_loops",
            ),
            mark=Mark(2, marks.find_wrapped),
        ),
        Pass(
            "asynchronous operations",
            cited(
                "service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses",
                f"{_H200}/collectives_in_loop",
            ),
            mark=Mark(1, _find_asynchronous),
        ),
    ),
)


TABLES = Tables(
    stages=GPU_PASSES,
    vanishing=(
        Vanishing(
            "collectives that are synchronous again",
            cited(
                "service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses;"
                " hlo/transforms/collectives/convert_async_collectives_to_sync.cc",
                "jaxlib-0.11.2/gpu-h200/collectives_in_branches",
            ),
            find=synchronized_collectives,
        ),
    ),
)
