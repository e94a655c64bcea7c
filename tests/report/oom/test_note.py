"""The note below a traceback: it adds up, and ends with the line to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.api.oom import describe_failure, describe_unknown, find_oom
from hlomem.report.oom.log import Failure
from hlomem.report.oom.note import Remark, draw_note
from tests.check.faults import rebuilt
from tests.places import GOLDENS, ROOT

ERROR = (ROOT / "examples" / "oom" / "error.txt").read_text()
PLACE = (
    "  look at /tmp/prog/train.py:8: 16.14 GiB, 67.5% of the peak, first while.4{3} "
    "f32[48,10240,4096] (stacked by a loop)"
)
BEFORE = ROOT / "examples" / "oom" / "before"


def find_failure(text: str) -> Failure | None:
    oom = find_oom(text)
    return None if oom is None else oom.failure


def test_a_compile_that_does_not_fit_says_how_much_is_missing_and_where_to_look() -> None:
    memory, failure = hlomem.explain(BEFORE), find_failure(ERROR)
    assert failure is not None
    lines = draw_note(memory.memory, memory.space, failure, Remark(reason="named", page="page: x"))
    assert lines == [
        "hlomem: train_step needs 23.90 GiB of HBM, 15.75 GiB available: over by 8.15 GiB",
        "  named",
        "    14.33 GiB   60.0%  stacked by a loop",
        "     3.02 GiB   12.6%  model parameters",
        "     3.02 GiB   12.6%  optimizer state",
        "     1.66 GiB    6.9%  carried by a loop",
        "     1.88 GiB    7.9%  the rest",
        "  page: x",
        PLACE,
    ]


def test_a_plan_of_ours_says_xlas_number_and_promises_nothing() -> None:
    failure = find_failure(ERROR.replace("23.90G", "24.50G"))
    assert failure is not None
    explained = hlomem.explain(BEFORE)
    explained.memory.is_planned = True
    note = describe_failure(explained, failure, "named", None).splitlines()
    assert note[0].startswith(
        "hlomem: train_step needs 24.50 GiB of HBM, 15.75 GiB available: over by 8.75"
    )
    assert note[1] == "  named; the plan is hlomem's own, of 23.90 GiB"
    [advice] = [line for line in note if line.startswith("  best advice: ")]
    assert "saves" not in advice


def test_advice_is_tried_or_for_large_programs_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = find_failure(ERROR)
    assert failure is not None
    note = describe_failure(hlomem.explain(BEFORE), failure, "", tmp_path / "page.html")
    assert "best advice: donate params, opt_state (4 arrays); saves 1.07 GiB to 1.99 GiB" in note
    assert "also possible: recompute layer in the backward pass (the body of a loop)" in note
    assert f"page: {tmp_path / 'page.html'}" in note
    assert "train_step" in (tmp_path / "page.html").read_text()
    monkeypatch.setattr("hlomem.api.oom.MAX_ADVISED", 10)
    note = describe_failure(hlomem.explain(BEFORE), failure, "", None)
    assert "best advice: up to 11.33 GiB: stacked by loops" in note


def test_a_log_without_such_an_error_has_no_failure() -> None:
    assert find_failure("all is well") is None


def test_a_failure_of_nobodys_says_how_many_programs_were_asked() -> None:
    failure = find_failure("RESOURCE_EXHAUSTED: Out of memory allocating 1099511627776 bytes.")
    assert failure is not None
    assert describe_unknown(failure, 3).startswith(
        "hlomem: 1.00 TiB could not be allocated, and none of the 3 programs seen requests as much"
    )


def test_a_compile_nobody_saw_says_how_to_see_it() -> None:
    failure = find_failure(ERROR)
    assert failure is not None
    first, second = describe_unknown(failure, 3).splitlines()
    assert first.startswith(
        "hlomem: train_step needs 23.90 GiB, 15.75 GiB available; its plan is not"
    )
    assert second == "  `hlomem run -- COMMAND` reads the dump XLA writes before it fails"


RUNNING = "RESOURCE_EXHAUSTED: Out of memory allocating 1099511627776 bytes."


def _note(explained: hlomem.MemoryExplanation) -> list[str]:
    """The note of a failure while running."""
    failure = find_failure(RUNNING)
    assert failure is not None
    return draw_note(explained.memory, explained.space, failure, Remark())


def test_an_allocation_that_failed_is_said_with_the_devices_of_the_program() -> None:
    [first, *_] = _note(hlomem.explain(GOLDENS / "trials" / "tpu" / "fsdp", module="train_step"))
    assert first.endswith(" of HBM on each of 4 devices; 1.00 TiB at once could not be allocated")


def test_without_live_ranges_there_is_no_line_to_look_at() -> None:
    dump = hlomem.load(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while")
    *_, last = _note(hlomem.explain(rebuilt(dump, live_ranges=None)))
    assert last.startswith("  look at `hlomem show`: the dump of ")


def test_without_lines_the_largest_buffer_is_named() -> None:
    *_, last = _note(hlomem.explain(GOLDENS / "xla" / "libtpu-0.0.51" / "tpu-v5e" / "const_only"))
    assert last == (
        "  look at constant.2: 32.0 KiB, 48.9% of the peak, first constant.2 f32[64,64] (constants)"
    )
