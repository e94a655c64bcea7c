"""GPU creation order (draft)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import (
    _first_parameter,
    _first_calls,
    _in_order_of_parameters,
    _number,
    _numbered_by_parameters,
    _PARTITIONED,
    _wrapped_bodies,
    is_derived,
    split_number,
)
from hlomem.analysis.module_order import _sorted_incrementally

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation

_BEFORE_FUSION = ("gemm_fusion_", "triton_softmax")


def gpu_creation_order(call_graph: CallGraph) -> list[HloComputation]:
    own, partitioned, derived, gemm, fused = [], [], [], [], []
    outlined: dict[HloComputation, None] = {}
    computations = call_graph.module.computations
    asyncs = [
        c
        for c in computations
        if any(s.opcode == "async-start" for s in call_graph.callsites[c])
    ]
    for c in sorted(asyncs, key=_number):
        for callee in call_graph.callees[c]:
            if call_graph.is_fused(callee) and ".clone" in callee.name:
                outlined[callee] = None
        outlined[c] = None
    wrapped = [c for c in _wrapped_bodies(call_graph) if c not in outlined]
    wrapped = _numbered_by_parameters(wrapped, call_graph)
    placed = {*outlined, *wrapped}
    for c in computations:
        if c in placed:
            continue
        if call_graph.is_fused(c):
            (gemm if c.name.startswith(_BEFORE_FUSION) else fused).append(c)
        elif is_derived(c, call_graph) or c.name.startswith("compare-greater"):
            derived.append(c)
        elif c.name.endswith(_PARTITIONED):
            partitioned.append(c)
        else:
            own.append(c)
    own.sort(key=_number)
    partitioned = _in_order_of_parameters(
        partitioned, dict.fromkeys(partitioned, (0, 0)), call_graph
    )

    def age(c):
        return split_number(_first_parameter(c, call_graph))[1]

    encounter = _first_calls(call_graph)

    def key(c):
        name = c.name
        if name.startswith("dot.") or "reduce_sub_computation" in name:
            return (3, 0, age(c))
        origin, dot, number = name.partition(".clone")
        if not dot:
            return (0, 0, age(c))
        if any(s.opcode in ("while", "conditional") for s in call_graph.callsites[c]):
            return (0, 1, age(c))
        if origin not in call_graph.module.computation_by_name and not any(i.opcode == "convert" for i in c.instructions):
            return (1, -1, encounter.get(c, 0))
        converts = any(i.opcode == "convert" for i in c.instructions)
        if converts:
            return (2, _n(origin), _n(number))
        return (1, _n(origin), _n(number))

    derived = _in_order_of_parameters(derived, {c: key(c) for c in derived}, call_graph)
    gemm.sort(key=age)
    late_gemm = [c for c in gemm if not c.name.endswith("_computation")and c.name.startswith("gemm")]
    gemm = [c for c in gemm if c not in late_gemm]
    prefix = [*own, *partitioned, *derived, *gemm]
    rough = [*prefix, *fused, *wrapped, *outlined, *late_gemm]
    before = {
        c: i
        for i, c in enumerate(_sorted_incrementally(rough, call_graph, len(prefix)))
    }

    def caller(c):
        sites = call_graph.callsites[c]
        if not sites: return 0
        return before.get(sites[0].parent, 0)

    fused.sort(key=lambda c: (caller(c), age(c)))
    def is_remat(c):
        return any(".remat" in s.name for s in call_graph.callsites[c]) and not _first_parameter(c, call_graph)
    first_late = min((age(c) for c in (*wrapped, *outlined) if _first_parameter(c, call_graph)), default=1 << 40) - 1
    numbered: list[tuple[int, HloComputation]] = []
    for group in (wrapped, list(outlined)):
        part = []
        next_age = 1 << 40
        for c in reversed(group):
            if _first_parameter(c, call_graph):
                next_age = min(next_age, age(c))
                part.append((age(c), c))
            else:
                part.append((next_age, c))
        numbered += reversed(part)
    # fused
    limit = {}
    low = first_late + 1
    for c in reversed(fused):
        limit.setdefault(caller(c), low)
        if _first_parameter(c, call_graph):
            low = min(low, age(c))
    part = []
    by_caller = {}
    for c in fused:
        by_caller.setdefault(caller(c), []).append(c)
    latest = -1
    for place, group in by_caller.items():
        ages = [age(c) for c in group if _first_parameter(c, call_graph)]
        latest = max([latest, *(a for a in ages if a < limit[place])])
        for c in group:
            if _first_parameter(c, call_graph):
                part.append((age(c), c))
            else:
                part.append((1 << 40 if is_remat(c) else latest + 0.5, c))
    numbered = [*part, *numbered]
    numbered.sort(key=lambda e: e[0])
    return [*prefix, *(c for _, c in numbered), *late_gemm]


def _n(text: str) -> int:
    numbers = re.findall(r"\.(\d+)", text)
    return int(numbers[-1]) if numbers else -1
