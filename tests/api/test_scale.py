"""`hlomem.scale`: plans at sizes nobody compiled, and what is said where they cannot be told."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.api.scale import ScaledProgram
from hlomem.base.errors import CommandError, InputError
from hlomem.hlo.scaling import Growth, GrowthError
from hlomem.machines.capacity import Capacity
from hlomem.pipeline import start_stages
from tests.hlo.test_scaling import SIZED, sizes_of
from tests.places import GOLDENS
from tests.test_pipeline import PROGRAMS, grown, outline, planned

TRAIN_STEP = GOLDENS / "sizes" / "train_step"
GPU = next(program for program in PROGRAMS if program.home.parent.name == "gpu-h200")


@pytest.mark.parametrize("program", SIZED, ids=lambda path: path.name)
def test_a_third_size_takes_what_xla_needs_for_it(program: Path) -> None:
    for one, other, third in permutations(sizes_of(program), 3):
        homes = (program / str(one), program / str(other))
        made = hlomem.scale(*homes, sizes=(one, other))
        assert made.bytes_at(third) == hlomem.explain(program / str(third)).space.size
        assert made.notes == ("planned for cpu: its fusions are split among threads",)


def test_the_largest_size_fits_and_the_next_does_not() -> None:
    made = hlomem.scale(TRAIN_STEP / "2", TRAIN_STEP / "4", sizes=(2, 4))
    for limit, step in ((650_000, 1), (700_000, 1), (1 << 20, 8)):
        largest, refused = made.largest(limit, step)
        assert refused is not None
        assert refused - largest == step
        assert made.bytes_at(largest) <= limit < made.bytes_at(refused)
    assert made.largest(1000) == (0, 1)


def test_a_report_tells_sizes_that_were_compiled_from_those_that_were_not() -> None:
    made = hlomem.scale(TRAIN_STEP / "2", TRAIN_STEP / "4", sizes=(2, 4))
    report = made.report([8], Capacity(size=1 << 20))
    assert report.largest is not None
    assert {plan.value: plan.is_given for plan in report.plans} == {
        2: True,
        4: True,
        8: False,
        report.largest: False,
        report.smallest_refused: False,
    }
    assert made.report().largest is None


def _is_kept(made: ScaledProgram, size: int) -> bool:
    return bool(made.at(size).shapes)


def test_a_machine_whose_rules_count_elements_is_planned_anew() -> None:
    stages = planned(GPU)
    old = max(size for array in stages.arrays for size in array.dimensions)
    other = hlo.parse(grown(GPU.text, old, 3 * old))
    made = ScaledProgram(stages, Growth(stages.module, other, (1, 3)))
    assert not _is_kept(made, 2)
    anew = start_stages(hlo.parse(grown(GPU.text, old, 2 * old)), stages.options)
    assert outline(made.at(2)) == outline(anew)


BODY = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[{n},8]) -> f32[{n},8] {{
  %a = f32[{n},8]{{1,0}} parameter(0)
  %b = f32[4,8]{{1,0}} constant({{...}})
{line}
  ROOT %c = f32[{n},8]{{1,0}} negate(%a)
}}
"""


def _scaled(line: str, one: int, other: int) -> ScaledProgram:
    texts = [BODY.format(n=size, line=line) for size in (one, other)]
    modules = [hlo.parse(text) for text in texts]
    return hlomem.scale(modules[0], modules[1], sizes=(one, other), backend="cpu")


def test_arrays_alike_at_one_size_alone_are_told_from_the_other() -> None:
    line = "  %d = f32[5,8]{1,0} tanh(%a)"
    assert _is_kept(_scaled(line, 4, 6), 9)
    made = _scaled("  %d = f32[6,8]{1,0} constant({...})", 4, 6)
    assert not _is_kept(made, 9)
    text = BODY.format(n=9, line="  %d = f32[6,8]{1,0} constant({...})")
    assert made.bytes_at(9) == _bytes(text)
    assert made.bytes_at(4) == _bytes(text.replace("[9,", "[4,"))


def _bytes(text: str) -> int:
    return hlomem.explain(hlomem.plan(text, backend="cpu")).space.size


def test_what_cannot_be_told_is_an_error() -> None:
    made = hlomem.scale(TRAIN_STEP / "2", TRAIN_STEP / "4", sizes=(2, 4))
    with pytest.raises(CommandError, match="a size is 1 or more, not 0"):
        made.at(0)
    halves = hlomem.scale(TRAIN_STEP / "2", TRAIN_STEP / "4", sizes=(4, 8))
    assert halves.bytes_at(6) == made.bytes_at(3)
    with pytest.raises(GrowthError, match="not be an integer at 5"):
        halves.bytes_at(5)
    with pytest.raises(GrowthError):
        halves.largest(1 << 20, step=11)


def test_a_dump_without_its_program_is_refused(tmp_path: Path) -> None:
    alone = tmp_path / "buffer-assignment.txt"
    alone.write_bytes((TRAIN_STEP / "2" / "buffer-assignment.txt").read_bytes())
    with pytest.raises(InputError, match="no HLO text next to this dump"):
        hlomem.scale(alone, TRAIN_STEP / "4", sizes=(2, 4))


def test_a_program_without_an_order_is_refused() -> None:
    texts = [BODY.format(n=size, line="").replace(", is_scheduled=true", "") for size in (2, 3)]
    with pytest.raises(InputError, match="without a schedule, which would depend on sizes"):
        hlomem.scale(hlo.parse(texts[0]), hlo.parse(texts[1]), sizes=(2, 3))


def test_a_plan_that_is_not_that_of_xla_is_said(tmp_path: Path) -> None:
    (tmp_path / "module.hlo").write_bytes((TRAIN_STEP / "4" / "module.hlo").read_bytes())
    written = (TRAIN_STEP / "8" / "buffer-assignment.txt").read_bytes()
    (tmp_path / "buffer-assignment.txt").write_bytes(written)
    made = hlomem.scale(TRAIN_STEP / "2", tmp_path, sizes=(2, 4))
    assert made.notes[-1].startswith("XLA's own plan at 4 takes 654248 bytes, hlomem's 638248:")
