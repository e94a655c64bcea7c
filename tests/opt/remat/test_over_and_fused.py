"""Results over operands that die, and values computed inside the loops that read them."""

from __future__ import annotations

import pytest

from hlomem.opt.candidate import Candidate, Program
from hlomem.opt.goal import Rules, Share
from hlomem.opt.orders.cost import module_time
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.fused import compute_inside
from hlomem.opt.remat.over import write_over
from hlomem.opt.search import find_accepted, write
from tests.opt.remat.cross_entropy import SIZE, TEXT, stages_of_step

EXACT = Rules(exact=True)
SMALL = 8192
"""Bytes of workspaces and rows."""


def _start(text: str = TEXT, platform: str = "gpu", chip: str = "h200") -> Candidate:
    return Program(stages_of_step(text, platform, chip), EXACT).start()


def test_xla_keeps_logits_zeros_and_gradient_apart() -> None:
    assert 3 * SIZE <= _start().temporaries <= 3 * SIZE + SMALL


def test_a_loop_writes_over_what_a_library_made() -> None:
    made = write_over(_start())
    assert made is not None
    assert 2 * SIZE <= made.temporaries <= 2 * SIZE + SMALL
    written, problems = write(made)
    assert problems == []
    [fusion] = [one for one in written.read_back.entry.instructions if one.name == "grad"]
    [alias] = fusion.output_to_operand_aliasing
    assert alias.operand_number == 1
    assert fusion.operands[1].shape == fusion.shape


def test_a_one_hot_scatter_needs_no_memory_and_no_time() -> None:
    start = _start()
    made = compute_inside(start)
    assert made is not None
    assert made.temporaries <= 2 * SIZE + SMALL
    written, problems = write(made)
    assert problems == []
    names = [one.name for one in written.read_back.entry.instructions]
    assert "hot.1" not in names
    assert "nothing" not in names
    machine = start.options.machine
    assert module_time(made.module, machine) < module_time(start.plan.module, machine)


def test_both_together_leave_the_logits_alone() -> None:
    start = _start()
    found, notes = find_accepted(start, Share(0.02))
    assert not notes
    assert found is not None
    assert SIZE <= found.temporaries <= SIZE + SMALL
    assert find_floor(start.plan).size <= found.temporaries


KEPT = {
    "read later": (
        "%rows = f32[2048,512]{1,0} bitcast(%grad)",
        "%rows = f32[2048,512]{1,0} add(%made, %made)",
    ),
    "no loop": ("%made, %weights.1), kind=kLoop", "%made, %weights.1), kind=kInput"),
    "read at other places": (
        "%viewed = f32[64,32,512]{2,1,0} bitcast(%logits)",
        "%viewed = f32[64,32,512]{2,1,0} reverse(%viewed.1), dimensions={0}",
    ),
}


@pytest.mark.parametrize(("old", "new"), KEPT.values(), ids=list(KEPT))
def test_what_is_needed_is_not_written_over(old: str, new: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new)
    if "%viewed.1" in new:
        view = "  %viewed.1 = f32[64,32,512]{2,1,0} bitcast(%logits)\n"
        text = text.replace("  %viewed = ", f"{view}  %viewed = ")
    made = write_over(_start(text))
    assert made is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("iota(), iota_dimension=0", "iota(), iota_dimension=1"),
        ("%zero = f32[] constant(0)", "%zero = f32[] constant(1)"),
        ("ROOT %z = f32[] add(%x, %y)", "ROOT %z = f32[] multiply(%x, %y)"),
    ],
    ids=["rows counted twice", "not of zeros", "products"],
)
def test_other_scatters_stay_or_are_refused(old: str, new: str) -> None:
    assert old in TEXT
    made = compute_inside(_start(TEXT.replace(old, new)))
    assert made is None or write(made)[1]


def test_nothing_is_declared_on_a_cpu() -> None:
    start = _start(platform="cpu", chip="")
    assert write_over(start) is None
    assert compute_inside(start) is None
