"""Programs without a schedule get the order XLA's scheduler of their backend chooses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.errors import UnsupportedError
from hlomem.hlo.ir import HloModule
from hlomem.hlo.schedule import running_computations
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.orders.xla_schedulers import choose_schedule
from tests.opt.orders.programs import CPU, GPU
from tests.places import GOLDENS

BREADTH_FIRST = sorted(path.parent for path in CPU.glob("*/module.hlo"))
DEPTH_FIRST = sorted(
    path.parent
    for version in ("0.4.30", "0.4.34", "0.4.38", "0.5.0")
    for path in (GOLDENS / "xla" / f"jaxlib-{version}" / "cpu").glob("*/module.hlo")
)


def _unscheduled(home: Path) -> tuple[HloModule, HloModule]:
    text = (home / "module.hlo").read_text()
    return hlo.parse(text), hlo.parse(re.sub(r",? is_scheduled=true", "", text, count=1))


def _agrees(home: Path, version: tuple[int, ...]) -> bool:
    scheduled, module = _unscheduled(home)
    chosen = choose_schedule(module, options_for(find_machine("cpu"), Release("jaxlib", version)))
    assert chosen is not None
    return all(
        [each.name for each in chosen.schedule.sequence(computation)]
        == [each.name for each in scheduled.computation_by_name[computation.name].instructions]
        for computation in running_computations(module)
    )


def test_breadth_first_is_the_order_cpu_has() -> None:
    """XLA reads the order of its lists from the text, so that it is what the text was made from."""
    others = [home.name for home in BREADTH_FIRST if not _agrees(home, (0, 12, 0, 1))]
    assert len(others) <= 0.1 * len(BREADTH_FIRST), others


def test_depth_first_is_the_order_cpu_had() -> None:
    agree = [home for home in DEPTH_FIRST if _agrees(home, (0, 4, 38))]
    assert 2 * len(agree) >= len(DEPTH_FIRST)
    assert DEPTH_FIRST


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_every_order_runs_operands_first(backend: str) -> None:
    for home in sorted((CPU if backend == "cpu" else GPU).iterdir()):
        _, module = _unscheduled(home)
        chip = "h200" if backend == "gpu" else ""
        chosen = choose_schedule(
            module, options_for(find_machine(backend, chip), Release("jaxlib", (0, 11, 2)))
        )
        assert chosen is not None
        for computation in running_computations(module):
            order = chosen.schedule.sequence(computation)
            place_of = {instruction: place for place, instruction in enumerate(order)}
            assert len(place_of) == len(computation.instructions)
            for instruction in order:
                needed = (*instruction.operands, *instruction.control_predecessors)
                assert all(place_of[each] < place_of[instruction] for each in needed)


def test_a_plan_says_whose_order_it_took() -> None:
    _, module = _unscheduled(CPU / "loop_swap")
    planned = hlomem.plan(module)
    assert (
        "the text has no schedule: in the order of XLA's breadth first scheduler" in planned.notes
    )


def test_the_order_of_a_tpu_is_not_guessed() -> None:
    _, module = _unscheduled(CPU / "scalar_only")
    with pytest.raises(UnsupportedError, match="no schedule"):
        hlomem.plan(module, backend="tpu", chip="v5e")
