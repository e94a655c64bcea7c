"""Who is alive: groups add up, and XLA's own number leads to ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.base.errors import CommandError, InputError
from hlomem.report.data.branches import ARGUMENTS
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.data.peak import KEYS, Key, build_snapshot
from hlomem.report.screens.peak_text import draw_snapshot
from tests.places import ROOT
from tests.trials import trial

GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
OOM = ROOT / "examples" / "oom" / "before"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_from_xlas_number_to_ours_in_steps_that_add_up(path: Path) -> None:
    memory = _memory(path)
    assert memory.dump.live_ranges is not None
    for space in memory.spaces:
        alive = build_snapshot(memory, space)
        assert alive.printed is not None
        total = alive.printed.size + sum(reason.size for reason in alive.printed.reasons)
        assert total == alive.size
        assert not any("without a location" in reason.why for reason in alive.printed.reasons)


@pytest.mark.parametrize("by", KEYS)
@pytest.mark.parametrize("path", [SEED_003, OOM], ids=["seed", "oom"])
def test_groups_and_the_rest_add_up(path: Path, by: Key) -> None:
    memory = _memory(path)
    whole = build_snapshot(memory, find_space(memory), by=by)
    assert sum(row.size for row in whole.rows) == whole.size
    assert whole.rest_size == whole.rest_count == 0
    cut = build_snapshot(memory, find_space(memory), by=by, top=2)
    assert sum(row.size for row in cut.rows) + cut.rest_size == cut.size
    assert sum(row.count for row in whole.rows) == cut.rest_count + sum(r.count for r in cut.rows)


def test_old_dumps_print_the_peak_without_padding() -> None:
    memory = _memory(SEED_003)
    printed = build_snapshot(memory, find_space(memory)).printed
    assert printed is not None
    assert (printed.step, printed.size) == (14, 1008025600)
    assert [(reason.why, reason.size) for reason in printed.reasons] == [
        ("padding, which that list leaves out", 4587520),
        ("reserved for results and arguments but not in use", 335857152),
    ]


def test_by_line_the_module_names_what_the_dump_numbers() -> None:
    [text] = OOM.glob("*after_optimizations.txt")
    memory = build_memory(hlomem.load(OOM), hlo.parse(text.read_text()))
    sizes = {
        row.key: row.size for row in build_snapshot(memory, find_space(memory), by="line").rows
    }
    assert max(sizes, key=lambda key: sizes[key]) == "/tmp/prog/train.py:8"  # noqa: S108
    assert sizes[ARGUMENTS] > 6 << 30


def test_by_argument_and_at_a_step() -> None:
    memory = _memory(OOM)
    rows = build_snapshot(memory, find_space(memory), at="0", by="arg").rows
    assert {"params['layers']", "opt_state['head']", "x", "y"} <= {row.key for row in rows}
    named = build_snapshot(memory, find_space(memory), at=memory.joined.sequence[7])
    assert named.step == 7
    assert named.near_peaks == ()
    assert named.printed is None


def test_unknown_steps_are_refused_with_what_there_is() -> None:
    memory = _memory(SEED_003)
    with pytest.raises(CommandError, match="no instruction 18: the last is 17"):
        build_snapshot(memory, find_space(memory), at="18")
    with pytest.raises(CommandError, match=r"no instruction `copi.3` .*did you mean copy.3"):
        build_snapshot(memory, find_space(memory), at="copi.3")


def test_without_live_ranges_there_is_no_peak() -> None:
    text = SEED_003.read_text()
    memory = build_memory(hlomem.load(text[: text.index("\nTotal bytes")]))
    with pytest.raises(InputError, match=r"no live ranges.*live-range.txt"):
        build_snapshot(memory, find_space(memory))
    assert sum(share.size for share in build_role_shares(memory, 0)) == find_space(memory).size


def test_ranges_outside_of_the_schedule_are_said_not_to_count() -> None:
    text = SEED_003.read_text().replace("copy.3{}:13-14", "copy.3{}:13-99")
    memory = build_memory(hlomem.load(text))
    alive = build_snapshot(memory, find_space(memory))
    assert "1 values (340787200 bytes) have no live range and are not counted" in alive.caveats


@pytest.mark.parametrize("by", KEYS)
@pytest.mark.parametrize("path", [SEED_003, OOM], ids=["seed", "oom"])
def test_the_screen_fits(path: Path, by: Key) -> None:
    memory = _memory(path)
    for width in (60, 80, 120):
        for line in draw_snapshot(build_snapshot(memory, find_space(memory), by=by), width):
            assert len("".join(text for text, _ in line)) <= width


def test_without_the_modules_text_it_says_why_lines_are_missing() -> None:
    memory = build_memory(replace(hlomem.load(OOM), open_module=None))
    space = find_space(memory)
    reason = "no lines without the module's text"
    assert reason in " ".join(build_snapshot(memory, space, by="line").caveats)
    assert reason not in " ".join(build_snapshot(memory, space, by="role").caveats)
    named = trial("tpu/gpt")
    assert reason not in " ".join(build_snapshot(named, find_space(named), by="line").caveats)


def test_the_moment_has_an_operation_and_a_line() -> None:
    memory = trial("cpu/gpt")
    peak = build_snapshot(memory, find_space(memory))
    screen = ["".join(text for text, _ in line) for line in draw_snapshot(peak, 100)]
    assert screen[1] == "Needs 1.22 GiB of memory"
    assert screen[2] == "Peak 1.22 GiB at instruction 166 of 344, at jvp()/exp (train_gpt.py:32)"


def test_what_is_not_shown_is_counted_in_groups() -> None:
    memory = trial("cpu/gpt")
    peak = build_snapshot(memory, find_space(memory), by="line", top=3)
    whole = build_snapshot(memory, find_space(memory), by="line")
    assert peak.rest_groups == len(whole.rows) - 3 < peak.rest_count
    assert any("smaller groups" in text for line in draw_snapshot(peak, 80) for text, _ in line)
