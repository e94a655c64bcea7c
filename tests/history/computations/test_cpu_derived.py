"""When the CPU compiler derived computations: passes that make them, and the last flattening."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.analysis.call_graph import CallGraph
from hlomem.history.computations.cpu_derived import sort_derivates
from hlomem.hlo.text.parser import parse

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


def _chain_of_clones(length: int) -> str:
    """A partitioned program of reductions with two results, each cloned from the one before."""
    names = ["region_0.1" + ".clone.1" * count for count in range(length)]
    lines = ["HloModule chain, is_scheduled=true", ""]
    for n, name in enumerate(names):
        lines += [
            f"%{name} (a{n}: f32[], b{n}: f32[], c{n}: f32[], d{n}: f32[]) -> (f32[], f32[]) {{",
            *(f"  %{each}{n} = f32[] parameter({i})" for i, each in enumerate("abcd")),
            f"  ROOT %t{n} = (f32[], f32[]) tuple(%a{n}, %b{n})",
            "}",
            "",
        ]
    lines += [
        "ENTRY %main.9_spmd (x: f32[8], z: f32[]) -> f32[8] {",
        "  %x = f32[8]{0} parameter(0)",
        "  %z = f32[] parameter(1)",
    ]
    lines += [
        f"  %r.{n} = (f32[], f32[]) reduce(%x, %x, %z, %z), dimensions={{0}}, to_apply=%{name}"
        for n, name in enumerate(names)
    ]
    return "\n".join([*lines, "  ROOT %n = f32[8]{0} negate(%x)", "}", ""])


def test_a_long_chain_of_clones_is_sorted() -> None:
    graph = CallGraph(parse(_chain_of_clones(600)))
    derived = [each for each in graph.module.computations if ".clone" in each.name]
    assert set(sort_derivates(derived[::-1], graph)) == set(derived)


SCATTER_IN_FUSIONS = """\
HloModule nested, is_scheduled=true

%region_0.1.clone (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r)
}

%inner (p.1: f32[8], i.1: s32[1,1], u.1: f32[1]) -> f32[8] {
  %p.1 = f32[8]{0} parameter(0)
  %i.1 = s32[1,1]{1,0} parameter(1)
  %u.1 = f32[1]{0} parameter(2)
  ROOT %scatter = f32[8]{0} scatter(%p.1, %i.1, %u.1), update_window_dims={}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, \
to_apply=%region_0.1.clone
}

%outer (p.2: f32[8], i.2: s32[1,1], u.2: f32[1]) -> f32[8] {
  %p.2 = f32[8]{0} parameter(0)
  %i.2 = s32[1,1]{1,0} parameter(1)
  %u.2 = f32[1]{0} parameter(2)
  ROOT %in = f32[8]{0} fusion(%p.2, %i.2, %u.2), kind=kLoop, calls=%inner
}

ENTRY %main.9_spmd (p: f32[8], i: s32[1,1], u: f32[1]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %i = s32[1,1]{1,0} parameter(1)
  %u = f32[1]{0} parameter(2)
  ROOT %out = f32[8]{0} fusion(%p, %i, %u), kind=kLoop, calls=%outer
}
"""


def test_a_call_deep_in_fusions_has_a_place() -> None:
    graph = CallGraph(parse(SCATTER_IN_FUSIONS))
    clone = graph.module.computation_by_name["region_0.1.clone"]
    assert sort_derivates([clone], graph) == [clone]
