"""What becomes of the arguments' memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.api.load import find_program
from hlomem.report.data.donation import build_donation, hint_of, top_level_name
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
    written = "is written at instruction 5, and wrapped_reduce-window reads the argument at 7"
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
    all_donated = donor.replace("(0, {}) }", "(0, {}), (1, {}), (2, {}) }")
    memory = build_memory(hlomem.load(path), hlo.parse(all_donated))
    lost = build_donation(memory, find_space(memory))
    hint = hint_of(lost)
    assert hint is not None
    assert hint.what == "donated, but no result reuses it: first a"
    assert hint.size == sum(row.size for row in lost.rows if row.state == "lost")


def _trial(name: str, function: str) -> MemoryView:
    [path] = (GOLDENS / "trials" / name).glob(
        f"*jit_{function}.*after_optimizations-buffer-assignment.txt*"
    )
    return build_memory(hlomem.load(path), find_program(str(path)))


@pytest.mark.parametrize("name", ["cpu/gpt", "tpu/gpt"])
def test_each_argument_gets_the_result_of_its_own_tree_and_each_result_is_given_once(
    name: str,
) -> None:
    memory = _trial(name, "train_step")
    rows = [row for row in build_donation(memory, find_space(memory)).rows if row.output_index]
    results = [row.output_index for row in rows]
    assert len(set(results)) == len(results) > 60
    # The function returns params, then opt_state: the arguments' own order.
    by_number = sorted(rows, key=lambda row: row.number)
    assert [row.output_index for row in by_number] == sorted(row.output_index or () for row in rows)
    for row in rows:
        assert row.result
        assert row.result in row.why


def test_a_donated_argument_that_is_read_later_is_said_to_be_copied() -> None:
    memory = _trial("cpu/lost", "g")
    [row] = build_donation(memory, find_space(memory)).rows[:1]
    assert (row.name, row.state, row.copied_size) == ("state", "used", 64 * 2**20)
    assert row.why.endswith("copies it first, 64.00 MiB")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("params['embed']['embedding']", "params"),
        ("opt_state[0].mu['w']", "opt_state"),
        ("x", "x"),
        ("parameter 3", ""),
        ("", ""),
    ],
)
def test_the_argument_of_the_function_is_told_by_a_leafs_path(path: str, name: str) -> None:
    assert top_level_name(path) == name
