"""The work of a search is bounded by the size of the program alone, counted, never timed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Program, count_instructions, count_kernels
from hlomem.opt.goal import EFFORTS, ORDER_WORK, Clock, Kernels, Rules, Share, WorkLeft
from hlomem.opt.once import once
from hlomem.opt.search import find_fits
from hlomem.opt.strategies import propose
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.remat.programs import chain
from tests.opt.remat.scanned import SCANNED, scanned_stages

BETWEEN_LOOKS = 24
"""Programs that are planned at most between two looks at the clock."""


LAYERS = """HloModule m, is_scheduled=true

one {
  a.1 = f32[8] parameter(0)
  ROOT b.1 = f32[8] sine(a.1)
}

two {
  a.2 = f32[8] parameter(0)
  ROOT b.2 = f32[8] sine(a.2)
}

ENTRY e {
  p = f32[8] parameter(0)
  x = f32[8] fusion(p), kind=kLoop, calls=one
  y = f32[8] fusion(x), kind=kLoop, calls=two
  ROOT z = f32[8] add(x, y)
}
"""


def _kernels(count: int) -> Kernels:
    return Kernels(count, count, count)


def _chain() -> Stages:
    return start_stages(hlo.parse(chain(32)), order_lists=in_text_order)


@pytest.mark.parametrize(
    "make", [_chain, *(lambda path=path: scanned_stages(path) for path in SCANNED)]
)
@pytest.mark.parametrize("kernels", [0, 4, 16])
def test_a_search_ends_soon_after_its_clock(make: Callable[[], Stages], kernels: int) -> None:
    program = Program(make(), Rules())
    clock = program.__dict__["clock"] = Clock("cpu", _kernels(kernels), "default")
    found = find_fits(program.start(), 1)  # nothing fits, so that all is tried
    most = max([count_instructions(one.plan) for one in found], default=0)
    most = max(most, count_instructions(program.stages))
    assert clock.left > -BETWEEN_LOOKS * most


def test_more_is_planned_where_more_is_compiled() -> None:
    found = []
    for kernels in (1, 8, 1000):
        program = Program(_chain(), Rules())
        program.__dict__["clock"] = Clock("cpu", _kernels(kernels), "default")
        start = program.start()
        found.append(len(find_fits(start, start.total // 3)))
    assert found[0] < found[1] <= found[2]


def test_every_search_of_a_program_has_all_its_work() -> None:
    program = Program(_chain(), Rules())
    first, second = (find_fits(program.start(), program.start().total // 3) for _ in range(2))
    assert [one.edit for one in first] == [one.edit for one in second]


@pytest.mark.parametrize("effort", EFFORTS)
def test_a_clock_grows_with_kernels_and_is_over_when_all_is_planned(effort: str) -> None:
    small, large = (Clock("cpu", _kernels(count), effort) for count in (3, 4))  # type: ignore[arg-type]
    assert 0 < small.left < large.left
    work = WorkLeft("high", small)
    seen = []
    spends: list[Callable[[], None]] = [
        lambda: small.spend(small.left - 1),
        lambda: work.take_order(1),
        small.start,
    ]
    for spend in spends:
        spend()
        seen.append((work.may_step, work.is_spent))
    assert seen == [(True, False), (False, True), (True, False)]


def test_a_compiler_that_takes_longer_leaves_more_time() -> None:
    gpu, cpu = (Clock(platform, _kernels(10), "default") for platform in ("gpu", "cpu"))
    assert gpu.left > cpu.left


def test_an_order_gets_the_work_of_its_effort_where_the_compile_takes_long() -> None:
    short, long = (Clock("cpu", _kernels(count), "default") for count in (4, 10_000))
    assert long.order_work("default") == ORDER_WORK["default"]
    less = short.order_work("default")
    assert 0 < less.planned_nodes < ORDER_WORK["default"].planned_nodes
    assert 0 < less.moved_nodes < ORDER_WORK["default"].moved_nodes
    assert short.order_work("low") == ORDER_WORK["low"]


def test_kernels_that_are_alike_are_compiled_once() -> None:
    alike = count_kernels(hlo.parse(LAYERS))
    other = count_kernels(hlo.parse(LAYERS.replace("sine(a.2)", "cosine(a.2)")))
    assert (alike, other) == (Kernels(3, 2, 3), Kernels(3, 3, 5))
    assert Clock("cpu", alike, "default").left < Clock("cpu", other, "default").left
    assert Clock("gpu", alike, "default").left == Clock("gpu", other, "default").left


def test_less_of_what_is_cheap_is_looked_for_where_little_is_compiled() -> None:
    found = []
    for count in (0, 1000):
        program = Program(scanned_stages(SCANNED[0]), Rules(recompute=1.0))
        program.__dict__["clock"] = Clock("cpu", _kernels(count), "default")
        found.append(next(propose(program.start(), Share(1.0))).temporaries)
    assert found[-1] < found[0]


def test_what_was_found_once_is_not_looked_for_again() -> None:
    program = Program(_chain(), Rules())
    asked: list[str] = []

    def find() -> None:
        asked.append("asked")

    assert once(program, "nothing", find) is None
    assert once(program, "nothing", find) is None
    assert once(program.stages, "nothing", find) is None
    assert len(asked) == 2
