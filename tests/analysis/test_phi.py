"""Phis that are needless, and phis XLA fails to see through."""

from __future__ import annotations

from hlomem.analysis.phi import PhiGraph
from hlomem.base.quantities import ValueId


def _optimize(phis: dict[int, list[int]]) -> dict[int, int]:
    graph = PhiGraph()
    for phi, inputs in phis.items():
        graph.register(ValueId(phi), [ValueId(each) for each in inputs])
    return {int(phi): int(value) for phi, value in graph.optimize().items()}


def test_a_value_merged_with_itself_needs_no_phi() -> None:
    assert _optimize({10: [1, 1]}) == {10: 1}


def test_a_phi_may_be_its_own_input() -> None:
    assert _optimize({10: [1, 10]}) == {10: 1}


def test_two_values_need_a_phi() -> None:
    assert _optimize({10: [1, 2]}) == {}


def test_phis_that_merge_one_value_in_a_circle_need_none() -> None:
    # The example in `hlo_phi_graph.cc`: A = phi(B, C), B = phi(C, D), C = phi(A, B).
    assert _optimize({10: [11, 12], 11: [12, 1], 12: [10, 11]}) == {10: 1, 11: 1, 12: 1}


def test_inputs_are_compared_as_sets() -> None:
    graph = PhiGraph()
    graph.register(ValueId(3), [ValueId(1), ValueId(2)])
    assert graph.inputs_equal(ValueId(3), [ValueId(2), ValueId(1), ValueId(1)])
    assert not graph.inputs_equal(ValueId(3), [ValueId(1)])
