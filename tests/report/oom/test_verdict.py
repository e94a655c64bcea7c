"""Why memory ran out: the texts of an H200, and figures of the same kinds."""

from __future__ import annotations

import pytest

from hlomem.job.instant import Instant, LiveArray, build_now
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.oom.verdict import Situation, block_to_clear, diagnose
from tests.places import GOLDENS

GIB, MIB = 1 << 30, 1 << 20
LIMIT = 112_583_507_968
TEXTS = {
    "program": ("program", "job/oom.py:5"),
    "live": ("autotuner", "job/oom.py:9"),
    "array": ("arrays", ""),
    "frag": ("arrays", "job/oom.py:15"),
}


def _arrays(count: int, size: int, apart: int = 0) -> tuple[LiveArray, ...]:
    return tuple(
        LiveArray(
            size=size, shape="f32[…]", line="oom.py:8", address=(1 << 40) + number * (size + apart)
        )
        for number in range(count)
    )


@pytest.mark.parametrize("name", TEXTS)
def test_the_texts_of_a_device(name: str) -> None:
    text = (GOLDENS / f"oom/jaxlib-0.11.2-h200/run_{name}.txt").read_text()
    oom = build_oom(read_oom(text))
    assert oom is not None
    assert oom.verdict is not None
    assert (oom.verdict.kind, oom.log.place) == TEXTS[name]


def _situation(needed: int, arrays: tuple[LiveArray, ...], **known: object) -> Situation:
    in_use = sum(array.size for array in arrays)
    instant = Instant(device="cuda:0", arrays=arrays, in_use=in_use, limit=LIMIT)
    return Situation(
        needed=needed,
        limit=LIMIT,
        in_use=in_use,
        rows=build_now(instant).rows,
        arrays=arrays,
        **known,  # type: ignore[arg-type]
    )


def test_more_than_the_pool_is_the_programs_fault() -> None:
    verdict = diagnose(_situation(270_000_000_000, _arrays(1, 38_400_000)))
    assert verdict.kind == "program"
    assert "2.4 times the pool of 104.9 GiB" in verdict.because


def test_arrays_that_are_held_are_named_with_how_many_to_drop() -> None:
    verdict = diagnose(_situation(30 * GIB, _arrays(24, 4 * GIB), program="f", asks=30 * GIB))
    assert verdict.kind == "arrays"
    assert verdict.holders[0].line == "oom.py:8"
    assert verdict.remedies[0].text.startswith("drop 6 of the 24 arrays f32[…] of oom.py:8")


def test_the_autotuner_can_be_switched_off() -> None:
    verdict = diagnose(_situation(30 * GIB, _arrays(24, 4 * GIB), is_tuner=True))
    assert verdict.kind == "autotuner"
    assert "--xla_gpu_autotune_level=0" in verdict.remedies[0].code
    assert any("drop 6 of" in remedy.text for remedy in verdict.remedies)


def test_room_in_pieces_is_fragmentation_and_neighbours_clear_it() -> None:
    arrays = _arrays(200, 256 * MIB, apart=256 * MIB)
    verdict = diagnose(_situation(6 * GIB, arrays, pool=LIMIT, largest_free=5 * GIB, grows=False))
    assert verdict.kind == "fragmented"
    assert verdict.remedies[0].text.startswith("drop 12 neighbouring arrays of oom.py:8, 3.00 GiB")
    cleared = block_to_clear(arrays, 6 * GIB)
    assert cleared is not None
    assert len(cleared) == 12


def test_regions_of_a_pool_that_grew_are_told_from_fragmentation() -> None:
    verdict = diagnose(_situation(70 * GIB, (), pool=64 * GIB, largest_free=64 * GIB, grows=True))
    assert verdict.kind == "regions"
    assert "PREALLOCATE=true" in verdict.remedies[0].code


def test_a_run_that_asks_for_more_than_is_free_is_no_fragmentation() -> None:
    here = _situation(
        2 * GIB, _arrays(24, 4 * GIB), program="step", asks=20 * GIB, results=18 * GIB,
        arguments=2 * GIB,
    )  # fmt: skip
    verdict = diagnose(here)
    assert verdict.kind == "arrays"
    assert any("donate arguments of step" in remedy.text for remedy in verdict.remedies)


def test_nothing_is_made_up() -> None:
    assert diagnose(Situation()).kind == "unknown"
    assert diagnose(Situation(needed=GIB)).kind == "unknown"
    assert diagnose(Situation(needed=GIB, occupancy=0.3)).kind == "unknown"
