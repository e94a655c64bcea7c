"""What is there twice, and why."""

from __future__ import annotations

from pathlib import Path

import hlomem
from hlomem.api.load import find_program
from hlomem.report.data.copies import Copies, build_copies, hint_of
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
GPU_SWAP = GOLDENS / "xla" / "jaxlib-0.11.2" / "gpu-h200" / "donate_swap"
ROTATE = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "loop_rotate3"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def test_copies_say_what_they_are_for() -> None:
    memory = _memory(SEED_003)
    copies = build_copies(memory, find_space(memory))
    assert [(row.name, row.of, row.cause) for row in copies.rows] == [
        ("copy.3", "fusion.5", "layout"),
        ("copy.4", "reshape.6", "layout"),
    ]
    assert copies.rows[0].why == "{2,0,1} becomes {2,1,0}"
    assert (copies.size_at_peak, copies.count_at_peak) == (340787200, 1)
    fast = build_copies(memory, find_space(memory, "vmem"))
    assert {row.cause for row in fast.rows} == {"memory space"}


def test_copies_that_keep_a_value_name_who_would_overwrite_it() -> None:
    memory = _memory(GPU_SWAP)
    why = {row.name: row.why for row in build_copies(memory, find_space(memory)).rows}
    assert why["copy"] == "copy.2 is written over a.1 at instruction 3"
    rotated = _memory(ROTATE)
    why = {row.name: row.why for row in build_copies(rotated, find_space(rotated)).rows}
    not_donated = "a is not donated, so it may not be written to"
    assert why["copy.12"] == f"{not_donated}; the loop carries its copy"
    assert why["copy.10"] == "copy.7 must be at the location of the loop's value"


def _trial(name: str, function: str) -> Copies:
    [path] = (GOLDENS / "trials" / name).glob(
        f"*jit_{function}.*after_optimizations-buffer-assignment.txt*"
    )
    memory = build_memory(hlomem.load(path), find_program(str(path)))
    return build_copies(memory, find_space(memory))


def test_activations_moved_out_of_fast_memory_are_no_copies_to_save() -> None:
    copies = _trial("tpu/gpt_donate", "train_step")
    assert copies.size_at_peak == 0
    assert copies.moved_size > 50 * 2**20
    assert hint_of(copies) is None


def test_what_rematerialization_compressed_is_no_copy_to_save() -> None:
    copies = _trial("tpu/concat_oom", "attend")
    assert not [row for row in copies.rows if ".remat" in row.name]


def test_copies_of_one_line_are_one_group_with_the_einsum_they_are_for() -> None:
    copies = _trial("cpu/gpt", "train_step")
    assert sum(group.count for group in copies.groups) == len(copies.rows)
    first = copies.groups[0]
    assert first.count > 1
    assert first.why == "transposed for the einsum bqhd,bkhd->bhqk"
    assert (first.source or "").rpartition("/")[2].startswith("gpt.py:")
    alike = [row for row in copies.rows if row.is_at_peak]
    assert sum(group.size for group in copies.groups if group.count_at_peak) == sum(
        row.size for row in alike
    )


def test_copies_that_a_loop_carries_on_are_at_the_peak_and_say_why() -> None:
    copies = _trial("tpu/decode", "decode")
    assert copies.size_at_peak >= 256 * 2**20
    whys = {group.example.name: group.why for group in copies.groups}
    assert any("xs and ys of a scan are two buffers" in why for why in whys.values())
