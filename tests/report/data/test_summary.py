"""The one screen: it adds up, it fits, it points at what matters."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.summary import build_summary
from hlomem.report.screens.summary_text import draw_summary
from tests.places import ROOT
from tests.trials import trial

GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
OOM = ROOT / "examples" / "oom" / "before"


@pytest.mark.parametrize("path", DUMPS[:5] + DUMPS[5::5], ids=lambda p: "/".join(p.parts[-3:]))
def test_it_adds_up_and_fits_one_screen(path: Path) -> None:
    memory = build_memory(hlomem.load(path))
    for space in memory.spaces:
        summary = build_summary(memory, space, parse_capacity("16GiB"))
        assert sum(share.size for share in summary.roles) == space.size
        for width in (60, 80, 120):
            screen = draw_summary(summary, width)
            assert len(screen) < 60
            assert max(len("".join(text for text, _ in line)) for line in screen) <= width


def test_seed_003_points_at_the_layout_copies_and_not_at_a_third_of_a_percent() -> None:
    memory = build_memory(hlomem.load(SEED_003))
    [hint] = build_summary(memory, find_space(memory)).hints
    assert (hint.command, hint.size) == ("copies", 340787200)
    assert "copy.3 (layout)" in hint.what


def test_what_does_not_fit_is_said_with_the_line_it_comes_from() -> None:
    [text] = OOM.glob("*after_optimizations.txt")
    memory = build_memory(hlomem.load(OOM), hlo.parse(text.read_text()))
    summary = build_summary(memory, find_space(memory), parse_capacity("15.75G"))
    screen = "\n".join(
        "".join(piece for piece, _ in line).rstrip() for line in draw_summary(summary, 80)
    )
    assert "Needs 23.90 GiB of HBM" in screen
    assert "151.7% of 15.75 GiB, over by 8.15 GiB" in screen
    assert "stacked by a loop           14.33 GiB   60.0%" in screen
    assert "/tmp/prog/train.py:8" in screen  # noqa: S108
    assert "6.03 GiB  arguments that could be donated: first params['layers']" in screen


def test_a_nominal_capacity_says_what_it_leaves_out() -> None:
    memory = build_memory(hlomem.load(OOM))
    space = find_space(memory)
    (note,) = build_summary(memory, space, parse_capacity("h100")).notes
    assert note.startswith("80.00 GiB is nominal for h100: programs get less; JAX preallocates 75%")
    assert build_summary(memory, space, parse_capacity("v5e")).notes == ()


def test_without_lines_the_largest_buffers_are_shown() -> None:
    memory = build_memory(replace(hlomem.load(OOM), open_module=None))
    peak = build_summary(memory, find_space(memory)).peak
    assert peak is not None
    assert peak.by == "buffer"


def test_without_live_ranges_there_are_roles_but_no_peak() -> None:
    text = SEED_003.read_text()
    memory = build_memory(hlomem.load(text[: text.index("\nTotal bytes")]))
    summary = build_summary(memory, find_space(memory))
    assert summary.peak is None
    assert sum(share.size for share in summary.roles) == summary.space.size
    assert any("live ranges" in note for note in summary.notes)
    assert draw_summary(summary, 80)


def _screen(memory: MemoryView) -> str:
    summary = build_summary(memory, find_space(memory))
    return "\n".join("".join(text for text, _ in line) for line in draw_summary(summary, 80))


def test_it_begins_with_the_function_and_what_it_needs() -> None:
    first, _, needs, *_ = _screen(trial("tpu/gpt")).split("\n")
    assert first == "train_step  tpu"
    assert needs == "Needs 879.4 MiB of HBM"


def test_a_partitioned_program_says_that_it_is_one_devices_share() -> None:
    assert "Needs 905.4 MiB of HBM per device, on each of 4" in _screen(trial("tpu/fsdp"))


def test_the_hosts_memory_is_in_the_line_of_spaces() -> None:
    assert "256.0 MiB of host" in _screen(trial("tpu/fsdp_offload"))


def test_recomputation_is_a_saving_also_where_layers_are_not_scanned() -> None:
    memory = trial("tpu/gpt_oom")
    hint, *_ = build_summary(memory, find_space(memory)).hints
    assert "could recompute them (jax.checkpoint)" in hint.what
    assert hint.size > 0.8 * find_space(memory).size


def test_evictions_from_vmem_are_no_copies_to_save() -> None:
    memory = trial("tpu/gpt")
    hints = build_summary(memory, find_space(memory)).hints
    assert sum(hint.size for hint in hints if hint.command == "copies") < 0.02 * 2**30
