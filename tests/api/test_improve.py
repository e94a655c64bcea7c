"""`hlomem.improve` as a whole: what the pass would do, told and written."""

from __future__ import annotations

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.errors import CommandError
from hlomem.opt.cheap_remat import RECOMPUTE
from tests.opt.remat.programs import products


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
