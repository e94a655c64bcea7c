"""One buffer's story, told from the dump."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.errors import CommandError
from hlomem.report.data.explain import explain
from hlomem.report.data.lookup import find_buffer
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.screens.explain_text import draw_explanation
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
OOM = ROOT / "examples" / "oom" / "before"
SWAP = GOLDENS / "xla" / "jaxlib-0.11.2" / "gpu-h200" / "donate_swap"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def test_a_padded_layout_copy() -> None:
    memory = _memory(SEED_003)
    told = explain(memory, find_buffer(memory, "copy.3"))
    assert [str(growth) for growth in told.growths] == ["513 → 520"]
    assert (told.first, told.last) == ("copy.3 writes it", "reshape.6 reads it")
    assert told.readers == ("reshape.6",)
    assert {each.name: each.when for each in told.neighbours} == {
        "pad": "before",
        "slice.2": "before",
        "fusion": "before",
    }
    [operand] = told.in_place
    assert (operand.operand, operand.is_shared) == ("fusion.5", False)
    assert operand.why == "has 336199680 bytes, not 340787200"


def test_a_loops_stack() -> None:
    memory = _memory(OOM)
    told = explain(memory, find_buffer(memory, "while.4{3}"))
    assert told.allocation_kind == "temporaries"
    assert "carried by while.4" in told.loops
    assert any(each.when == "together" and each.why for each in told.neighbours)


def test_why_until_the_end() -> None:
    memory = _memory(SEED_003)
    assert explain(memory, find_buffer(memory, "copy.4")).last == "the caller gets it"
    argument = explain(memory, find_buffer(memory, "Arg_0.1"))
    assert argument.last.startswith("it is an argument that was not donated")
    assert argument.first == "it is an argument"


def test_what_passes_through_an_arguments_memory_is_no_argument() -> None:
    memory = _memory(SWAP)
    told = explain(memory, find_buffer(memory, "copy.2"))
    assert told.allocation_kind == "donated parameters"
    assert told.meaning.startswith("the same elements again")
    before = [each.name for each in told.neighbours if each.when != "after"]
    assert before == ["a.1"]


def test_in_place_is_said_where_it_is() -> None:
    memory = _memory(OOM)
    shared = [
        each
        for buffer in memory.buffers
        for each in explain(memory, buffer).in_place
        if each.is_shared
    ]
    assert shared
    assert {each.why for each in shared} == {"it is written over it"}


def test_names_are_found_or_the_nearest_suggested() -> None:
    memory = _memory(SEED_003)
    assert find_buffer(memory, "copy-start").name == "copy-start{0}"
    assert find_buffer(memory, "copy-start{2}").size == 4
    with pytest.raises(CommandError, match=r"no buffer `copy.33` .*did you mean copy.3"):
        find_buffer(memory, "copy.33")
    with pytest.raises(CommandError, match=r"no buffer `\?\?\?` in [^;]*$"):
        find_buffer(memory, "???")


def test_all_frames_are_shown_when_asked_for() -> None:
    [text] = OOM.glob("*after_optimizations.txt")
    memory = build_memory(hlomem.load(OOM), hlo.parse(text.read_text()))
    told = explain(memory, find_buffer(memory, "while.4{3}"))
    screen = ["".join(piece for piece, _ in line) for line in draw_explanation(told, 80, True)]
    assert sum("train.py" in line for line in screen) > 1
    short = ["".join(piece for piece, _ in line) for line in draw_explanation(told, 80)]
    assert sum("train.py" in line for line in short) == 1


@pytest.mark.parametrize("path", [SEED_003, OOM, SWAP], ids=["seed", "oom", "swap"])
def test_every_buffer_can_be_explained_and_fits(path: Path) -> None:
    memory = _memory(path)
    for buffer in memory.buffers:
        told = explain(memory, buffer)
        for width in (60, 80):
            for line in draw_explanation(told, width):
                assert len("".join(text for text, _ in line)) <= width
