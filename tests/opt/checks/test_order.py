"""The judge of orders lets every legal order pass and no wrong one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.hlo.text.parser import parse
from hlomem.opt.checks.order import check_orders
from hlomem.opt.orders.flow import Flow
from tests.assign.programs import module_of
from tests.opt.orders.programs import (
    HOMES,
    flows_of,
    iter_edges,
    name_of,
    named,
    random_order,
    stages_of,
)

WRONG_ORDERS = 1000


@settings(max_examples=200)
@given(home=st.sampled_from(HOMES), seed=st.integers(0, 2**32))
def test_every_legal_order_passes(home: Path, seed: int) -> None:
    for flow in flows_of(home):
        assert not check_orders(stages_of(home).module, named(flow, random_order(flow, seed)))


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_the_given_order_passes(home: Path) -> None:
    module = stages_of(home).module
    orders = {flow.computation: flow.nodes for flow in flows_of(home)}
    assert not check_orders(module, orders)


def _without_edge(flow: Flow, edge: tuple[int, int]) -> list[int] | None:
    """An order that keeps all edges but one; None where others imply that one."""
    earlier, later = edge
    before = [
        [one for one in needed if (one, node) != edge] for node, needed in enumerate(flow.before)
    ]
    before[earlier] = [*before[earlier], later]
    waits = [len(needed) for needed in before]
    after: list[list[int]] = [[] for _ in before]
    for node, needed in enumerate(before):
        for one in needed:
            after[one].append(node)
    ready = [node for node, count in enumerate(waits) if not count]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for follower in after[node]:
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return order if len(order) == len(before) else None


def _broken(flow: Flow, chance: random.Random) -> list[int] | None:
    """A wrong order: an edge turned around, a node left out, or one that stands twice."""
    nodes = list(range(len(flow.nodes)))
    kind = chance.randrange(10)
    if kind == 0:
        nodes.remove(chance.choice(nodes))
        return nodes
    if kind == 1:
        nodes[chance.choice(nodes)] = chance.choice(nodes)
        return nodes if len(set(nodes)) < len(nodes) else None
    edges = list(iter_edges(flow))
    return _without_edge(flow, chance.choice(edges)) if edges else None


def test_a_thousand_wrong_orders_are_rejected() -> None:
    chance = random.Random(1)  # noqa: S311 - not for secrets
    flows = [(home, flow) for home in HOMES for flow in flows_of(home) if len(flow.nodes) > 2]
    tried = 0
    while tried < WRONG_ORDERS:
        home, flow = chance.choice(flows)
        order = _broken(flow, chance)
        if order is not None:
            tried += 1
            assert check_orders(stages_of(home).module, named(flow, order)), (home, order)


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_every_edge_the_search_keeps_is_one_the_judge_asks_for(home: Path) -> None:
    module = stages_of(home).module
    for flow in flows_of(home):
        edges = list(iter_edges(flow))
        chance = random.Random(2)  # noqa: S311 - not for secrets
        for edge in chance.sample(edges, min(len(edges), 25)):
            order = _without_edge(flow, edge)
            if order is not None:
                names = [flow.nodes[node].name for node in edge]
                assert check_orders(module, named(flow, order)), names


DUS_BODY = """%body (p: f32[64], u: f32[8], i: s32[]) -> (f32[64], f32[8]) {
  %p = f32[64]{0} parameter(0)
  %u = f32[8]{0} parameter(1)
  %i = s32[] parameter(2)
  %same = f32[64]{0} bitcast(%p)
  %dus = f32[64]{0} dynamic-update-slice(%same, %u, %i)
  ROOT %t = (f32[64]{0}, f32[8]{0}) tuple(%dus, %u)
}

"""
WRAPPED = """%wrapped (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  ROOT %s = f32[64]{0} sine(%p)
}

"""
EFFECT = 'custom-call(), custom_call_target="say", custom_call_has_side_effect=true'
COPY = "%c = f32[64]{0} copy(%a)"
READER = "%late = f32[64]{0} negate(%c)"
ASYNC = (
    "%start = ((f32[64]{0}), f32[64]{0}, s32[]) async-start(%a), calls=%wrapped",
    "%work = f32[64]{0} negate(%b)",
    "%update = ((f32[64]{0}), f32[64]{0}, s32[]) async-update(%start)",
    "%done = f32[64]{0} async-done(%update)",
    "ROOT %r = (f32[64]{0}, f32[64]{0}) tuple(%done, %work)",
)
OVERWRITTEN = "writes over what late needs, which runs later"


def _with_writer(writer: str, result: str = "f32[64]{0}", before: str = "") -> tuple[str, str]:
    """A program that copies, reads the copy, and writes over it; and what goes before it."""
    lines = ("%i = s32[] constant(0)", "%u = f32[8]{0} slice(%b), slice={[0:8]}", COPY, READER)
    root = f"ROOT %r = ({result}, f32[64]{{0}}) tuple(%w, %late)"
    return module_of(*lines, f"%w = {result} {writer}", root, before=before), "late"


@pytest.mark.parametrize(
    ("program", "moved", "problem"),
    [
        (_with_writer("dynamic-update-slice(%c, %u, %i)"), "w", OVERWRITTEN),
        (_with_writer("scatter(%c, %i, %u), to_apply=%wrapped", before=WRAPPED), "w", OVERWRITTEN),
        (_with_writer("ragged-all-to-all(%b, %c, %i, %i, %i, %i)"), "w", OVERWRITTEN),
        (
            _with_writer(
                'custom-call(%c), custom_call_target="f", output_to_operand_aliasing={{}: (0, {})}'
            ),
            "w",
            OVERWRITTEN,
        ),
        (
            _with_writer(
                "fusion(%c, %u, %i), kind=kLoop, calls=%body", "(f32[64]{0}, f32[8]{0})", DUS_BODY
            ),
            "w",
            OVERWRITTEN,
        ),
        ((module_of(*ASYNC, before=WRAPPED), "start"), "work", "no longer runs between start and"),
        (
            (module_of(f"%x = () {EFFECT}", f"%y = () {EFFECT}", "ROOT %r = () tuple()"), "x"),
            "y",
            "y takes effect where x did",
        ),
    ],
    ids=["update", "scatter", "ragged", "declared", "in a fusion", "overlap", "effects"],
)
def test_a_wrong_order_is_told_by_what_goes_wrong(
    program: tuple[str, str], moved: str, problem: str
) -> None:
    text, place = program
    module = parse(text)
    order = list(module.entry.instructions)
    assert not check_orders(module, {module.entry: order})
    names = [instruction.name for instruction in order]
    order.insert(names.index(place), order.pop(names.index(moved)))
    [found] = check_orders(module, {module.entry: order})
    assert problem in found
