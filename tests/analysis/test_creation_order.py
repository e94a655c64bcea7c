"""The order in which computations were made, from their names."""

from __future__ import annotations

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.creation_order import creation_order, split_number
from hlomem.hlo.parser import parse
from tests.analysis.programs import CONDITIONAL


def test_names_are_split_into_base_and_number() -> None:
    assert split_number("add.12") == ("add", 12)
    assert split_number("region_0.3.clone.1") == ("region_0.3.clone", 1)
    assert split_number("add") == ("add", -1)


def test_regions_then_fusions_then_wrapped_instructions_as_the_program_runs() -> None:
    names = [each.name for each in creation_order(CallGraph(parse(CONDITIONAL)))]
    assert names == [
        "region_0.1",
        "region_1.2",
        "main.3",
        "fused_computation",
        "fused_computation.1",
        "wrapped_convert_computation",
        "wrapped_subtract_computation",
    ]
