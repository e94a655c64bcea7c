"""`hlomem plan` from outside."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from hlomem.assign import packing
from hlomem.write import stack_trace
from tests.cli.conftest import Run

SCALAR = "xla/jaxlib-0.12.0.1/cpu/scalar_only"
NAMES = {
    "module-buffer-assignment.txt": "buffer-assignment.txt",
    "module-buffer-assignment-values.txt": "values.txt",
    "module-live-range.txt": "live-range.txt",
    "module-memory-usage-report.txt": "memory-usage-report.txt",
}


def test_writes_the_four_files_xla_writes(run: Run, goldens: Path, tmp_path: Path) -> None:
    entry = goldens / SCALAR
    assert run("plan", entry / "module.hlo", "-o", tmp_path / "out").code == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made == {long: (entry / short).read_bytes() for long, short in NAMES.items()}


def test_standard_output_has_all_files_after_one_another(run: Run, goldens: Path) -> None:
    entry = goldens / SCALAR
    text = (entry / "module.hlo").read_bytes()
    whole = b"".join((entry / short).read_bytes() for short in NAMES.values())
    assert run("plan", entry / "module.hlo").out == whole
    assert run("plan", "-", stdin=gzip.compress(text)).out == whole


def test_an_old_era_gets_the_files_it_had(run: Run, goldens: Path, tmp_path: Path) -> None:
    entry = goldens / "xla/jaxlib-0.4.13/cpu/scalar_only"
    dump = entry / "buffer-assignment.txt"
    result = run(
        "plan", entry / "module.hlo", "--era", "jaxlib-0.4.13", "--schedule", dump, "-o", tmp_path
    )
    assert result.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["module-buffer-assignment.txt"]
    assert (tmp_path / "module-buffer-assignment.txt").read_bytes() == dump.read_bytes()
    like = run("plan", entry / "module.hlo", "--like", dump, "--schedule", dump)
    assert like.out == dump.read_bytes()


def test_json_and_timings(run: Run, goldens: Path) -> None:
    result = run("plan", goldens / SCALAR / "module.hlo", "--json", "--timings")
    content = json.loads(result.out)
    assert content["schema"] == "hlomem/1"
    assert content["eras"] == ["K"]
    assert content["values"]["total_bytes"] == content["overview"]["total"]
    assert "assignment" in result.err
    assert "ms of CPU time" in result.err


def test_what_cannot_be_printed_whole_is_not_printed(
    run: Run, goldens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_trace, "_MAX_NAMES", 0)
    for output in ([], ["-o", str(tmp_path)]):
        result = run("plan", goldens / SCALAR / "module.hlo", *output)
        assert (result.code, result.out) == (3, b"")
        assert "make a tree of over 0 names" in result.err
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_overwritten_only_by_force(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    module = goldens / SCALAR / "module.hlo"
    assert run("plan", module, "-o", tmp_path).code == 0
    again = run("plan", module, "-o", tmp_path)
    assert again.code == 2
    assert "exists; give --force" in again.err
    assert run("plan", module, "-o", tmp_path, "--force").code == 0


def test_a_dump_that_no_xla_wrote_is_nothing_to_write_like(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    """Files of two versions: the second is where it shows."""
    new, old = goldens / SCALAR, goldens / "xla/jaxlib-0.5.3/cpu/nested_while"
    shutil.copy(new / "live-range.txt", tmp_path)
    shutil.copy(old / "memory-usage-report.txt", tmp_path)
    result = run("plan", new / "module.hlo", "--like", tmp_path / "live-range.txt")
    assert result.code == 3
    assert "memory-usage-report.txt:1:1: its era is unknown" in result.err


UNSCHEDULED = """\
HloModule m

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} negate(%x)
}
"""


def test_a_module_without_a_schedule_gets_that_of_its_backend(run: Run) -> None:
    result = run("plan", "-", "--backend", "cpu", stdin=UNSCHEDULED.encode())
    assert result.code == 0
    assert "note: the text has no schedule: in the order of XLA's breadth first" in result.err


def test_a_module_whose_scheduler_is_unknown_says_what_to_do(run: Run) -> None:
    result = run("plan", "-", "--backend", "tpu", "--chip", "v5e", stdin=UNSCHEDULED.encode())
    assert result.code == 3
    assert "<stdin>:1:1: the module has no schedule" in result.err
    assert "given as the schedule" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--era", "Z"], 2, "unknown era `Z`"),
        (["--era", "K", "--like", "DUMP"], 2, "not both"),
        (["--schedule", "DUMP/live-range.txt"], 3, "does not match module"),
        (["--backend", "npu"], 2, "--backend"),
    ],
)
def test_wrong_options_are_refused(
    run: Run, goldens: Path, arguments: list[str], code: int, words: str
) -> None:
    dump = str(goldens / "xla/jaxlib-0.12.0.1/cpu/nested_while")
    arguments = [each.replace("DUMP", dump) for each in arguments]
    result = run("plan", goldens / SCALAR / "module.hlo", *arguments)
    assert result.code == code
    assert words in result.err


def test_a_dump_is_not_a_module(run: Run, goldens: Path) -> None:
    result = run("plan", goldens / "seeds/000_d4bdf7378546cee1.txt")
    assert result.code == 3
    assert "`plan` needs the HLO module" in result.err


TPU = "xla/libtpu-0.0.51/tpu-v5e/donate_mixed"


def test_a_tpu_with_what_was_placed_beforehand(run: Run, goldens: Path, tmp_path: Path) -> None:
    entry = goldens / "xla/libtpu-0.0.51/tpu-v5e/pjit_tp_mlp"
    chip = ("--backend", "tpu", "--chip", "v5e", "--era", "libtpu-0.0.51")
    preset = ("--preset", entry / "buffer-assignment.txt")
    result = run("plan", entry / "module.hlo", *chip, *preset, "-o", tmp_path / "out")
    assert result.code == 0
    assert "note" not in result.err
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made == {long: (entry / short).read_bytes() for long, short in NAMES.items()}


def test_a_tpu_without_says_that_it_packs_anew(run: Run, goldens: Path, tmp_path: Path) -> None:
    entry = goldens / TPU
    result = run(
        "plan", entry / "module.hlo", "--backend", "tpu", "--chip", "v5e", "-o", tmp_path / "out"
    )
    assert result.code == 0
    assert "note: the text does not say where values lie in memory space 1" in result.err
    assert run("verify", tmp_path / "out", "--hlo", entry / "module.hlo").code == 0


def test_a_preset_must_be_of_the_module(run: Run, goldens: Path) -> None:
    chip = ("--backend", "tpu", "--chip", "v5e")
    other = goldens / "xla/libtpu-0.0.51/tpu-v5e/dus_donate/buffer-assignment.txt"
    result = run("plan", goldens / TPU / "module.hlo", *chip, "--preset", other)
    assert result.code == 3
    assert "it places `copy-start` of shape f32[16,256]" in result.err
    nothing = goldens / "xla/libtpu-0.0.51/tpu-v5e/const_only/buffer-assignment.txt"
    result = run("plan", goldens / TPU / "module.hlo", *chip, "--preset", nothing)
    assert result.code == 3
    assert "of memory space 1, which `jit_donate_mixed` has" in result.err


def test_a_preset_must_be_of_the_chip(run: Run, goldens: Path) -> None:
    chip = ("--backend", "tpu", "--chip", "v4")
    dump = goldens / TPU / "buffer-assignment.txt"
    result = run("plan", goldens / TPU / "module.hlo", *chip, "--preset", dump)
    assert result.code == 3
    assert "no temporary allocation in memory space 3" in result.err


def test_a_tpu_needs_its_chip_and_a_cpu_no_preset(run: Run, goldens: Path) -> None:
    result = run("plan", goldens / TPU / "module.hlo", "--backend", "tpu")
    assert result.code == 2
    assert "give one of v5e, v5p, v6e, tpu7x as the chip" in result.err
    assert run("plan", goldens / TPU / "module.hlo").code == 2
    assert run("plan", goldens / TPU / "module.hlo", "--chip", "v5e").code == 0
    dump = goldens / SCALAR / "buffer-assignment.txt"
    result = run("plan", goldens / SCALAR / "module.hlo", "--preset", dump)
    assert result.code == 2
    assert "`cpu` has no preset offsets" in result.err


def test_a_plan_is_verified_on_demand(run: Run, goldens: Path, tmp_path: Path) -> None:
    result = run("plan", goldens / SCALAR / "module.hlo", "--verify", "-o", tmp_path, "--timings")
    assert result.code == 0
    assert "verify" in result.err
    assert len(list(tmp_path.iterdir())) > 1


def test_a_wrong_plan_is_not_written(
    run: Run, goldens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "place", lambda sizes, *_rest: [0 for _ in sizes])
    module = goldens / "xla/jaxlib-0.12.0.1/cpu/nested_while/module.hlo"
    for target in ((), ("-o", str(tmp_path / "out"))):
        result = run("plan", module, "--verify", *target)
        assert result.code == 1
        assert "interference/overlap" in result.err
        assert not result.out
    assert not (tmp_path / "out").exists()
