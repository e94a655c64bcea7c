"""The list and the tree at the peak add up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlomem.dump.records import (
    PeakBuffer,
    StackTrace,
    TraceNode,
)
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, rules, small_dump

TREE = StackTrace(
    total=96,
    nodes=(
        TraceNode(name="main", depth=0, percent=100.0, total=96, current=0, remaining=96),
        TraceNode(name="a", depth=1, percent=66.7, total=64, current=64, remaining=32),
        TraceNode(name="b", depth=1, percent=33.3, total=32, current=32, remaining=0),
    ),
)


@pytest.mark.parametrize("name", ["", "percent", "total", "current", "remaining"])
def test_the_tree_at_the_peak_adds_up(name: str) -> None:
    nodes = list(TREE.nodes)
    if name:
        nodes[1] = replace(nodes[1], **{name: getattr(nodes[1], name) + 1})
    buffers = (
        PeakBuffer(instruction="a", index=(), size=64, cumulative=64),
        PeakBuffer(instruction="b", index=(), size=32, cumulative=96),
    )
    peak = plain.Peak(moment=1, buffers=buffers, stack_trace=replace(TREE, nodes=tuple(nodes)))
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), 64, shape="f32[8]{0}", size=32)])
    assert dump.live_ranges is not None
    wrong = rebuilt(dump, live_ranges=replace(dump.live_ranges, peak=peak))
    assert rules(wrong) == (["totals/peak"] if name else [])


def test_an_unbounded_shape_has_no_peak() -> None:
    dump = small_dump([V("a", (0, 1), shape="f32[?]{0}")])
    assert dump.live_ranges is not None
    peak = plain.Peak(moment=0, buffers=(PeakBuffer(instruction="a", index=(), size=3),))
    assert rules(rebuilt(dump, live_ranges=replace(dump.live_ranges, peak=peak))) == []
