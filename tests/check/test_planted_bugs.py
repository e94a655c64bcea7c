"""The planner broken in many places, one at a time: the checker, given the module, notices.

A bug that changes no plan is not counted; of the others at least 95 in 100 must be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.analysis import alias_rules, aliasing, forwarding, live_range, propagation, values
from hlomem.analysis.live_range import LiveRange
from hlomem.analysis.phi import PhiGraph
from hlomem.assign import assigner, packing, problem, shared, sharing
from hlomem.assign.allocation import OffsetSize
from hlomem.base.quantities import Offset
from hlomem.check.verify import verify
from hlomem.machines.cpu import CPU
from tests.conftest import GOLDENS

FOLDER = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu"

IN_PLACE = """HloModule m, is_scheduled=true

fused {
  x = f32[4,4]{1,0} parameter(0)
  t = f32[4,4]{1,0} transpose(x), dimensions={1,0}
  ROOT s = f32[4,4]{1,0} add(x, t)
}

ENTRY e {
  p = f32[4,4]{1,0} parameter(0)
  i = s32[] parameter(1)
  a = f32[4,4]{1,0} negate(p)
  b = f32[4,4]{1,0} fusion(a), kind=kLoop, calls=fused
  c = f32[4,4]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[1,4]{1,0} slice(c), slice={[0:1], [0:4]}
  u = f32[4,4]{1,0} dynamic-update-slice(c, d, i, i)
  ROOT r = f32[4,4]{1,0} reverse(u), dimensions={0}
}
"""
SIZES = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[5]{0} parameter(0)
  a = f32[5]{0} sine(p)
  b = f32[40]{0} broadcast(a), dimensions={}
  c = f32[3]{0} slice(a), slice={[0:3]}
  d = f32[40]{0} reverse(b), dimensions={0}
  f = f32[3]{0} reverse(c), dimensions={0}
  g = f32[40]{0} concatenate(d), dimensions={0}
  ROOT t = (f32[40]{0}, f32[3]{0}, f32[5]{0}) tuple(g, f, a)
}
"""


class Bug(NamedTuple):
    """A function of the planner, and what stands in its place."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """From the right function to the wrong one."""


def constantly(answer: object) -> Callable[[Any], Any]:
    """A function that always says the same."""
    return lambda _right: lambda *_arguments, **_options: answer


def shortened(right: Any) -> Any:
    """A live range that ends one step early."""

    def wrong(*arguments: Any) -> LiveRange:
        start, end = right(*arguments)
        return LiveRange(start, max(start, end - 1))

    return wrong


def late(right: Any) -> Any:
    """A live range that begins one step late."""

    def wrong(*arguments: Any) -> LiveRange:
        start, end = right(*arguments)
        return LiveRange(min(start + 1, end), end)

    return wrong


def without_last_of_each(right: Any) -> Any:
    """Lists that lack their last."""
    return lambda *arguments: [each[:-1] for each in right(*arguments)]


def of_first(right: Any) -> Any:
    """Merges only the first of what meets."""
    return lambda self, instruction, inputs: right(self, instruction, inputs[:1])


def unpadded(right: Any) -> Any:
    """Packs without a thought for alignment."""
    return lambda timeline, _alignment, *rest, **options: right(timeline, 1, *rest, **options)


def at_bottom(_right: Any) -> Any:
    """Places every buffer at the beginning of its heap."""
    return lambda sizes, *_rest: [0 for _ in sizes]


def half_open(right: Any) -> Any:
    """Takes the last step of a life for free."""

    def wrong(buffers: Any) -> Any:
        return [
            tuple((first, max(first, last - 1)) for first, last in lives)
            for lives in right(buffers)
        ]

    return wrong


def smaller(right: Any) -> Any:
    """Every buffer loses an element."""
    return lambda *arguments: {key: size - 4 for key, size in right(*arguments).items()}


def one_up(right: Any) -> Any:
    """All offsets of a heap are those of the neighbour."""

    def wrong(*arguments: Any, **options: Any) -> Any:
        made = right(*arguments, **options)
        if made is None:
            return None
        names = sorted(made.offset_by_id)
        turned = dict(
            zip(names, [made.offset_by_id[n] for n in names[1:] + names[:1]], strict=True)
        )
        return replace(made, offset_by_id=turned)

    return wrong


def first_element(_right: Any) -> Any:
    """Every get-tuple-element takes the first."""

    def wrong(instruction: Any, sets: Any) -> Any:
        operand = instruction.operands[0]
        return sets[operand][operand.shape.parts.element(0)]

    return wrong


def not_combined(right: Any) -> Any:
    """Puts all heaps at the start of the one allocation."""

    def wrong(*arguments: Any) -> Any:
        allocations = right(*arguments)
        for allocation in allocations:
            if allocation.is_preallocated_temp:
                for value, (_, size) in list(allocation.slices.items()):
                    allocation.slices[value] = OffsetSize(Offset(0), size)
        return allocations

    return wrong


BUGS: dict[str, Bug] = {
    "any user writes in place": Bug(sharing, "can_share_operand_buffer", constantly(True)),
    "any result takes its operand's place": Bug(
        shared.SharedAllocations, "_may_overwrite", constantly(True)
    ),
    "any fusion writes in place": Bug(alias_rules, "_fusion_may_share", constantly(True)),
    "everything is element-wise": Bug(alias_rules, "is_elementwise_on", constantly(True)),
    "updates are not in place": Bug(aliasing, "in_place_pairs", constantly(())),
    "loops carry nothing": Bug(aliasing, "_alias_loop", constantly(None)),
    "donations are forgotten": Bug(aliasing, "_alias_outputs", constantly(None)),
    "ranges end early": Bug(live_range.FlattenedSchedule, "live_range", shortened),
    "ranges begin late": Bug(live_range.FlattenedSchedule, "live_range", late),
    "uses do not count": Bug(live_range.FlattenedSchedule, "_last_use", constantly(-1)),
    "positions do not count": Bug(live_range.FlattenedSchedule, "_last_position", constantly(-1)),
    "ranges are not cut": Bug(live_range, "normalize_buffers", constantly(())),
    "the last use is lost": Bug(values.UseFinder, "readers", without_last_of_each),
    "branches are one": Bug(propagation.Propagation, "_merge", of_first),
    "needless phis stay": Bug(PhiGraph, "optimize", constantly({})),
    "elements are the first": Bug(forwarding, "_get_tuple_element", first_element),
    "lives do not touch": Bug(packing, "_lives_in_slots", half_open),
    "everything is at the bottom": Bug(packing, "place", at_bottom),
    "nothing is aligned": Bug(packing._Timeline, "pack", unpadded),
    "offsets are the neighbour's": Bug(packing._Timeline, "pack", one_up),
    "buffers are too small": Bug(problem, "_buffer_sizes", smaller),
    "nothing interferes": Bug(shared.SharedAllocations, "_interferes", constantly(False)),
    "nothing is busy": Bug(shared.Occupancy, "overlapping", constantly(())),
    "heaps lie on one another": Bug(assigner, "combine_temporaries", not_combined),
    "arguments end with their last use": Bug(
        live_range.FlattenedSchedule, "_is_aliased", constantly(True)
    ),
}


def modules() -> Iterator[str]:
    """Programs that between them go through all of the planner."""
    yield from (IN_PLACE, SIZES)
    for path in sorted(FOLDER.glob("*/module.hlo")):
        yield path.read_text()


TEXTS = list(modules())


def plan(text: str) -> hlomem.Dump:
    """What the planner, broken or not, makes of a module."""
    return hlomem.plan(text, backend="cpu").dump


@pytest.fixture(scope="module")
def right_plans() -> list[dict[str, str]]:
    """What it should make."""
    return [plan(text).texts() for text in TEXTS]


def outcomes(right_plans: list[dict[str, str]]) -> Iterator[bool]:
    """For each module a bug changes the plan of: whether the checker finds something."""
    for text, right in zip(TEXTS, right_plans, strict=True):
        try:
            wrong = plan(text)
        except (AssertionError, LookupError, ValueError):
            continue  # found by the planner itself
        if wrong.texts() != right:
            yield bool(verify(wrong, module=hlo.parse(text), machine=CPU).findings)


def test_bugs_of_the_planner_are_found(
    right_plans: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, list[bool]] = {}
    for name, bug in BUGS.items():
        with monkeypatch.context() as patch:
            wrong = bug.make(getattr(bug.owner, bug.name, None))
            patch.setattr(bug.owner, bug.name, wrong)
            if bug.owner is forwarding:
                patch.setitem(forwarding.FORWARD, "get-tuple-element", wrong)
            found[name] = list(outcomes(right_plans))
    planted = {name: any(results) for name, results in found.items() if results}
    assert len(planted) >= 20, found
    assert sum(planted.values()) >= 0.95 * len(planted), planted


def test_right_plans_are_right() -> None:
    for text in TEXTS:
        assert verify(plan(text), module=hlo.parse(text), machine=CPU).is_clean
