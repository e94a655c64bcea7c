"""`hlomem.improve`: correct orders, recomputed values, and the savings that are reported."""

from __future__ import annotations

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.errors import CommandError, UnsupportedError
from hlomem.opt import search, strategies
from hlomem.opt.candidate import start_text
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.orders.cost import module_time
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.orders.search import Improvement, improve
from tests.opt.orders.programs import CPU, HOMES
from tests.opt.remat.programs import products
from tests.places import GOLDENS, ROOT

TRAIN_STEP = ROOT / "examples" / "train_step"


def _temporaries(text: str, backend: str = "cpu", chip: str = "") -> int:
    allocations = hlomem.plan(text, backend=backend, chip=chip).stages.assignment.allocations
    return sum(each.size for each in allocations if each.is_preallocated_temp and not each.color)


def test_the_text_of_a_better_order_plans_to_the_size_said() -> None:
    [path] = TRAIN_STEP.glob("*_optimizations.txt")
    found = hlomem.improve(path.read_text())
    assert found.report.before == _temporaries(path.read_text())
    assert found.report.after == _temporaries(found.text()) < found.report.before
    assert found.report.saves == found.report.before - found.report.after
    assert not found.is_rebuilt


def test_the_text_has_the_same_instructions_in_another_order() -> None:
    [path] = TRAIN_STEP.glob("*_optimizations.txt")
    text = path.read_text()
    better = hlomem.improve(text).text()
    assert better != text
    assert sorted(better.splitlines()) == sorted(text.splitlines())
    assert hlo.parse(better).is_scheduled


def test_the_best_packing_of_both_orders_needs_no_more_than_xlas_does() -> None:
    for home in (CPU / "g_cholesky_solve", CPU / "m_overlap", CPU / "loops_in_loops"):
        report = hlomem.improve((home / "module.hlo").read_text()).report
        assert report.packing is not None
        assert report.packing.before <= report.before
        assert report.packing.after <= report.after
        assert report.bound is not None
        assert report.bound <= report.packing.after


HOLES = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %a = f32[8192]{0} custom-call(%p), custom_call_target="make"
  %b = f32[3584]{0} custom-call(%a), custom_call_target="make"
  %x = f32[4]{0} custom-call(%a, %b), custom_call_target="read"
  %c = f32[8192]{0} custom-call(%x), custom_call_target="make"
  %y = f32[4]{0} custom-call(%c), custom_call_target="read"
  %d = f32[3584]{0} custom-call(%y), custom_call_target="make"
  %z = f32[4]{0} custom-call(%b, %d), custom_call_target="read"
  %e = f32[8192]{0} custom-call(%z), custom_call_target="make"
  ROOT %r = f32[4]{0} custom-call(%d, %e), custom_call_target="read"
}
"""


def test_a_heap_that_xla_packs_with_holes_would_be_smaller() -> None:
    report = hlomem.improve(HOLES, backend="cpu").report
    assert report.packing is not None
    assert report.packing.before_proven
    assert report.packing.before < report.before
    assert not report.saves


def test_a_dump_is_improved_with_its_module_or_without() -> None:
    dump = hlomem.load(TRAIN_STEP)
    [path] = TRAIN_STEP.glob("*_optimizations.txt")
    given = hlomem.improve(dump, module=hlo.parse(path.read_text()))
    rebuilt = hlomem.improve(dump)
    assert (given.is_rebuilt, rebuilt.is_rebuilt) == (False, True)
    assert given.report.before == rebuilt.report.before
    assert "the program was rebuilt from the dump" in rebuilt.report.notes


def test_a_program_without_a_schedule_is_written_with_one() -> None:
    text = (CPU / "loop_swap" / "module.hlo").read_text().replace("is_scheduled=true, ", "", 1)
    found = hlomem.improve(text)
    assert hlo.parse(found.text()).is_scheduled
    assert any("no schedule" in note for note in found.report.notes)


def test_verdicts_follow_from_bound_and_proofs() -> None:
    for home in HOMES[:8]:
        text = (home / "module.hlo").read_text()
        found = hlomem.improve(text)
        report = found.report
        is_at_bound = report.bound is not None and found.ordered.temporaries <= report.bound
        assert (report.verdict == "at the bound") == is_at_bound


def test_an_order_the_judge_objects_to_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = TRAIN_STEP.glob("*_optimizations.txt")

    def wrong(*arguments: object, **options: object) -> Improvement:
        found = improve(*arguments, **options)  # type: ignore[arg-type]
        [(computation, order)] = found.orders.items()
        return found._replace(orders={computation: order[::-1]})

    monkeypatch.setattr(strategies, "improve", wrong)
    found = hlomem.improve(path.read_text(), recompute=0.0)
    assert not found.orders
    assert found.report.after == found.report.before
    assert any("rejected" in note for note in found.report.notes)


def test_a_tpus_program_whose_places_are_fixed_is_refused() -> None:
    path = next((GOLDENS / "xla" / "libtpu-0.0.51" / "tpu-v5e").glob("*/module.hlo"))
    homes = sorted(path.parent.parent.glob("*/module.hlo"))
    texts = [each.read_text() for each in homes if "S(1)" in each.read_text()]
    with pytest.raises(UnsupportedError, match="already placed in fast memory"):
        hlomem.improve(texts[0], backend="tpu", chip="v5e")


@pytest.mark.parametrize("options", [{"effort": "huge"}, {"max_slowdown": 0.5}])
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(CommandError):
        hlomem.improve((CPU / "scalar_only" / "module.hlo").read_text(), **options)  # type: ignore[arg-type]


def test_values_are_computed_again_unless_that_is_turned_off() -> None:
    text = products(4)
    better, ordered = (
        hlomem.improve(text, backend="cpu", recompute=share) for share in (RECOMPUTE, 0)
    )
    assert better.report.again is not None
    assert better.report.after < better.report.again.ordered == ordered.report.after
    assert ordered.report.again is None
    count = len(hlo.parse(text).entry.instructions)
    assert len(hlo.parse(ordered.text()).entry.instructions) == count
    assert len(hlo.parse(better.text()).entry.instructions) > count


def test_the_best_packing_is_that_of_the_program_found() -> None:
    report = hlomem.improve(products(4), backend="cpu").report
    assert report.packing is not None
    assert report.packing.after <= report.after < report.packing.before


def test_a_program_without_a_schedule_may_have_values_computed_again() -> None:
    text = products(4).replace(", is_scheduled=true", "")
    found = hlomem.improve(text, backend="cpu")
    assert found.report.again is not None
    assert hlo.parse(found.text()).is_scheduled


@pytest.mark.parametrize("share", [-0.01, 1.5, float("nan"), "2%", None])
def test_a_share_that_is_none_is_refused(share: object) -> None:
    with pytest.raises(CommandError, match="`recompute` is a share between 0 and 1"):
        hlomem.improve(products(1), recompute=share)  # type: ignore[arg-type]


def test_the_report_adds_up_with_the_text() -> None:
    found = hlomem.improve(products(4), backend="cpu", effort="low")
    again = found.report.again
    assert again is not None
    assert found.report.after < again.ordered == found.ordered.temporaries
    module = hlo.parse(found.text())
    stages = start_text(module, found.stages.options)
    assert temporary_bytes(stages) == found.report.after
    names = [one.name for one in module.entry.instructions]
    assert again.instructions == len(names) - len(found.stages.module.entry.instructions) == 1
    machine = found.stages.options.machine
    assert again.program_time == module_time(found.stages.module, machine)
    assert again.time == module_time(module, machine) - again.program_time > 0


def test_a_program_that_a_checker_rejects_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = hlomem.improve(products(4), backend="cpu", effort="low", recompute=0)
    monkeypatch.setattr(search, "find_problems", lambda *_: ["it is wrong"])
    better = hlomem.improve(products(4), backend="cpu", effort="low")
    assert better.text() == ordered.text()
    assert better.report.again is None
    assert better.report.after == ordered.report.after
    assert better.report.notes[-1] == "recomputation was found and rejected: it is wrong"
