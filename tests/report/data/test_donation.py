"""What becomes of the arguments' memory."""

from __future__ import annotations

from pathlib import Path

import hlomem
from hlomem import hlo
from hlomem.report.data.donation import build_donation
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def test_donation_says_which_argument_could_and_which_does() -> None:
    memory = _memory(ROOT / "examples" / "oom" / "before")
    donation = build_donation(memory, find_space(memory))
    state_of = {row.name: row.state for row in donation.rows}
    assert state_of["params['layers']"] == state_of["opt_state['head']"] == "possible"
    assert state_of["x"] == "no match"
    assert donation.used_size == 0
    assert donation.possible_size == 2 * (48 * 4096 * 4096 + 4096 * 1000) * 4
    after = _memory(ROOT / "examples" / "oom" / "after")
    donation = build_donation(after, find_space(after))
    assert donation.used_size == 2 * (48 * 4096 * 4096 + 4096 * 1000) * 4
    assert donation.possible_size == 0


def test_an_argument_read_after_its_result_is_written_is_not_counted() -> None:
    memory = _memory(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "zero_size")
    donation = build_donation(memory, find_space(memory))
    [row] = [row for row in donation.rows if row.state == "read later"]
    assert (row.name, row.result) == ("b", "broadcast_multiply_fusion")
    written = "is written at step 5, and wrapped_reduce-window reads the argument at 7"
    assert row.why.endswith(written)
    possible = sum(row.size for row in donation.rows if row.state == "possible")
    assert donation.possible_size == possible


def test_a_donated_argument_no_result_takes_is_lost() -> None:
    path = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "loop_rotate3"
    text = (path / "module.hlo").read_text()
    assert "input_output_alias" not in text
    head, _, rest = text.partition(", ")
    donor = f"{head}, buffer_donor={{ (0, {{}}) }}, {rest}"
    memory = build_memory(hlomem.load(path), hlo.parse(donor))
    donation = build_donation(memory, find_space(memory))
    assert donation.is_declared_known
    assert {row.name: row.state for row in donation.rows}["a"] == "lost"
