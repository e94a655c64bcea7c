"""When the CPU compiler derived computations: passes that make them, and the last flattening."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.cpu_derivates import sort_derivates
from hlomem.hlo.parser import parse

CONVERTS = "_converts"  # says what the body does; no part of the name
REDUCERS = (
    "region_2.9.clone",  # the program called a function twice
    "region_1.5.clone_converts",
    "add_computation",
    "region_0.1.reduce_window",
    "scalar_add_computation",
    "and.reduce_sub_computation",
    "region_0.1.clone",  # of one that reduces windows first
    "scalar_add_computation.clone",
)
"""Names of derivates, the oldest first."""


def _module(reducers: list[str]) -> str:
    """A program that applies the reducers in this order, and two of its own."""
    lines = ["HloModule derivates, is_scheduled=true", ""]
    names = ["region_0.1", "region_2.9", *reducers]
    for n, name in enumerate(names):
        result = f"convert(%p{n})" if name.endswith(CONVERTS) else f"add(%p{n}, %q{n})"
        lines += [
            f"%{name.removesuffix(CONVERTS)} (p{n}: f32[], q{n}: f32[]) -> f32[] {{",
            f"  %p{n} = f32[] parameter(0)",
            f"  %q{n} = f32[] parameter(1)",
            f"  ROOT %r.{n} = f32[] {result}",
            "}",
            "",
        ]
    lines += [
        "ENTRY %main.3 (x: f32[8], z: f32[]) -> f32[8] {",
        "  %x = f32[8]{0} parameter(0)",
        "  %z = f32[] parameter(1)",
        "  %w = f32[8]{0} reduce-window(%x, %z), window={size=1}, to_apply=%region_0.1",
        "  %u = f32[] reduce(%w, %z), dimensions={0}, to_apply=%region_2.9",
    ]
    lines += [
        f"  %c.{number} = f32[] reduce(%x, %z), dimensions={{0}},"
        f" to_apply=%{name.removesuffix(CONVERTS)}"
        for number, name in enumerate(reducers)
    ]
    lines += ["  ROOT %result = f32[8]{0} copy(%w)", "}", ""]
    return "\n".join(lines)


@given(st.permutations(REDUCERS))
def test_passes_made_them_in_the_order_of_the_pipeline(reducers: list[str]) -> None:
    graph = CallGraph(parse(_module(list(reducers))))
    by_name = graph.module.computation_by_name
    derived = [by_name[each.removesuffix(CONVERTS)] for each in reducers]
    assert [each.name for each in sort_derivates(derived, graph)] == [
        each.removesuffix(CONVERTS) for each in REDUCERS
    ]


def test_nothing_was_derived() -> None:
    assert sort_derivates([], CallGraph(parse(_module([])))) == []
