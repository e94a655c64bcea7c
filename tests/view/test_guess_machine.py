"""The machine is told by what its compiler leaves in texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.api.load import load
from hlomem.base.errors import CommandError
from hlomem.machines.registry import MACHINES
from hlomem.view.guess_machine import (
    choose_machine,
    guess_for_dump,
    guess_for_module,
    platform_of_dump,
)
from hlomem.view.joined import join_dump
from tests.places import GOLDENS

FOREIGN = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "foreign_call"
"""Calls a kernel of a TPU, and was planned for a CPU."""
MODULES = sorted({*(GOLDENS / "xla").glob("*/*/*/module.hlo")} - {FOREIGN / "module.hlo"})
BY_HAND = "HloModule m, is_scheduled=true\n\nENTRY %e (a: f32[8]) -> f32[8] {{\n{0}\n}}\n"
PRINTED = BY_HAND.replace("true", "true, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}")
PLAIN = "  %a = f32[8]{0} parameter(0)\n  ROOT %n = f32[8]{0} negate(%a)"


def _platforms(text: str, file_name: str = "") -> set[str]:
    guess = guess_for_module(hlo.parse(text), file_name)
    return {machine.platform for machine in guess.machines}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: "/".join(path.parts[-4:-1]))
def test_every_golden_tells_its_platform_and_never_another_chip(path: Path) -> None:
    platform, _, chip = path.parts[-3].partition("-")
    guess = guess_for_module(hlo.parse(path.read_text()))
    assert {machine.platform for machine in guess.machines} == {platform}
    assert guess.reason
    names = {machine.chip_name for machine in guess.machines}
    assert names == {""} or chip in names


@pytest.mark.parametrize("path", MODULES[::7], ids=lambda path: "/".join(path.parts[-4:-1]))
def test_a_dump_and_its_module_tell_the_same_platform(path: Path) -> None:
    guess = guess_for_dump(join_dump(hlomem.load(path.parent)))
    of_module = guess_for_module(hlo.parse(path.read_text()))
    assert guess.machines[0].platform == of_module.machines[0].platform


@pytest.mark.parametrize(
    ("instruction", "platform"),
    [
        ("  ROOT %n = f32[8]{0:T(256)} parameter(0)", "tpu"),
        ("  ROOT %n = f32[8]{0:T(256)S(1)} parameter(0)", "tpu"),
        ('  ROOT %n = f32[8] parameter(0), backend_config={"operation_queue_id":"0"}', "gpu"),
        ('  ROOT %n = f32[8] custom-call(), custom_call_target="__cublas$gemm"', "gpu"),
        ('  ROOT %n = f32[8] custom-call(), custom_call_target="tpu_custom_call"', "tpu"),
        ('  ROOT %n = f32[8] custom-call(), custom_call_target="lapack_sgetrf_ffi"', "cpu"),
        ('  ROOT %n = f32[8] custom-call(), custom_call_target="__onednn$matmul"', "cpu"),
    ],
)
def test_a_mark_tells_whoever_wrote_the_text(instruction: str, platform: str) -> None:
    assert _platforms(BY_HAND.format(instruction)) == {platform}


def test_a_name_that_looks_like_a_mark_is_none() -> None:
    named = PLAIN + ', metadata={op_name="jit(f)/__cublas$gemm:T(8)/tpu_custom_call"}'
    assert _platforms(PRINTED.format(named)) == {"cpu"}


def test_a_compiled_module_without_marks_is_for_the_cpu() -> None:
    assert _platforms(PRINTED.format(PLAIN)) == {"cpu"}


def test_a_text_that_xla_did_not_print_may_be_for_any_machine() -> None:
    guess = guess_for_module(hlo.parse(BY_HAND.format(PLAIN)))
    assert {machine.platform for machine in guess.machines} == {"cpu", "gpu", "tpu"}
    assert guess.reason == ""


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt", "gpu"),
        ("module_0001.jit_f.gpu_after_optimizations.txt", "gpu"),
        ("dump/module_0001.jit_f.cpu_after_optimizations.txt.gz", "cpu"),
    ],
)
def test_the_name_xla_gives_a_file_tells(name: str, platform: str) -> None:
    assert _platforms(BY_HAND.format(PLAIN), name) == {platform}


def test_the_name_that_xla_gives_counts_more_than_the_text() -> None:
    tiled = PRINTED.format("  ROOT %n = f32[8]{0:T(256)} parameter(0)")
    assert _platforms(tiled) == {"tpu"}
    assert _platforms(tiled, "jit_f.cpu_after_optimizations.txt") == {"cpu"}


def test_sizes_and_offsets_count_more_than_a_call_of_another_machine() -> None:
    assert _platforms((FOREIGN / "module.hlo").read_text()) == {"tpu"}
    guess = choose_machine(join_dump(load(FOREIGN)), None)
    assert guess.machine.platform == "cpu"
    assert guess.reason == "its sizes and offsets are those of memory without tiles"


@pytest.mark.parametrize(
    "mark", ['backend_config={"operation_queue_id":"0"}', 'custom_call_target="__gpu$xla.gpu.x"']
)
def test_a_mark_counts_wherever_it_stands(mark: str) -> None:
    long = f'metadata={{op_name="{"x" * 400_000}"}}'
    marked, plain = f"  %c = f32[8]{{0}} custom-call(), {mark}\n", PLAIN + f", {long}"
    assert _platforms(PRINTED.format(marked + plain)) == {"gpu"}
    assert _platforms(PRINTED.format(plain)) == {"cpu"}


def test_the_surest_mark_is_the_reason_wherever_it_stands() -> None:
    long = f'metadata={{op_name="{"x" * 400_000}"}}'
    sure = '  %c = f32[8]{0} custom-call(), backend_config={"operation_queue_id":"0"}\n'
    less = ', custom_call_target="__cudnn$x"'
    text = PRINTED.format(f"{sure}{PLAIN}, {long}{less}".replace("negate(%a)", "custom-call()"))
    guess = guess_for_module(hlo.parse(text))
    assert guess.reason == "its instructions have operation queues"


def test_a_file_of_an_amd_gpu_is_refused() -> None:
    with pytest.raises(CommandError, match="no rules for GPU chip `gfx942`"):
        _platforms(BY_HAND.format(PLAIN), "m.jit_f.gfx942_gpu_after_optimizations.txt")


@pytest.mark.parametrize(
    ("layout", "name", "chips"),
    [
        ("T(256)S(3)", "", {"v4"}),
        ("T(256)S(1)", "", {"v5e", "v5p", "v6e", "tpu7x"}),
        ("T(256)", "", {"v4", "v5e", "v5p", "v6e", "tpu7x"}),
        ("T(256)", "train.v6e.hlo", {"v6e"}),
    ],
)
def test_chips_are_told_apart_as_far_as_they_differ(
    layout: str, name: str, chips: set[str]
) -> None:
    text = BY_HAND.format(f"  ROOT %n = f32[8]{{0:{layout}}} parameter(0)")
    guess = guess_for_module(hlo.parse(text), name)
    assert {machine.chip_name for machine in guess.machines} == chips


def test_a_given_machine_is_as_it_was_at_the_time_of_the_dump() -> None:
    path = next(iter(sorted((GOLDENS / "xla" / "jaxlib-0.4.13" / "cpu").iterdir())))
    plan = join_dump(hlomem.load(path))
    given, inferred = (choose_machine(plan, each) for each in (MACHINES["cpu"], None))
    assert given.machine.default_alignment == inferred.machine.default_alignment == 16
    assert given.reason == ""
    assert inferred.reason == "its layouts are not tiled, its format is old"


def test_a_dump_without_marks_is_of_what_its_file_or_its_program_says(tmp_path: Path) -> None:
    swap = GOLDENS / "xla/jaxlib-0.11.2/gpu-h200/donate_swap"
    assert platform_of_dump(load(swap))[0] == "gpu"
    bare = replace(load(swap), open_module=None)
    assert platform_of_dump(bare)[0] == "cpu"
    name = "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt"
    shutil.copy(swap / "buffer-assignment.txt", tmp_path / name)
    assert platform_of_dump(load(tmp_path)) == ("gpu", "its file's name says so")
