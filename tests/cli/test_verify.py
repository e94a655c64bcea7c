"""`hlomem verify` from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import Run

SPLIT = "xla/jaxlib-0.12.0.1/cpu/nested_while"
SEED = "seeds/003_e0d5fae9bf2de249.txt"


def broken(goldens: Path, folder: Path) -> Path:
    """A dump with a value moved onto another."""
    shutil.copytree(goldens / SPLIT, folder, dirs_exist_ok=True)
    text = folder / "buffer-assignment.txt"
    text.chmod(0o644)
    old = "<30 tanh_add_fusion @0> (size=16384,offset=16384)"
    new = "<30 tanh_add_fusion @0> (size=16384,offset=64)"
    content = text.read_text()
    assert old in content
    text.write_text(content.replace(old, new))
    return folder


def test_a_right_plan_is_said_to_be_right(run: Run, goldens: Path) -> None:
    result = run("verify", goldens / SEED)
    assert result.code == 0
    screen = result.out.decode()
    assert "no finding" in screen
    assert "assumed: a plan for tpu-v5p, because its layouts are tiled" in screen
    assert "not checked:" in screen


def test_a_module_beside_the_dump_is_used(run: Run, goldens: Path, tmp_path: Path) -> None:
    screen = run("verify", goldens / SPLIT, "--backend", "cpu").out.decode()
    assert "assumed" not in screen
    assert "there is no module" not in screen
    for part in ("buffer-assignment", "live-range"):
        shutil.copy(goldens / SPLIT / f"{part}.txt", tmp_path / f"m-{part}.txt")
    shutil.copy(goldens / SPLIT / "values.txt", tmp_path / "m-buffer-assignment-values.txt")
    alone = run("verify", tmp_path / "m-buffer-assignment.txt").out.decode()
    assert "there is no module" in alone
    shutil.copy(goldens / SPLIT / "module.hlo", tmp_path / "m.txt")
    beside = run("verify", tmp_path / "m-buffer-assignment.txt").out.decode()
    assert "there is no module" not in beside


def test_a_wrong_plan_exits_with_1_and_names_both_values(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    result = run("verify", broken(goldens, tmp_path / "dump"))
    screen = result.out.decode()
    assert result.code == 1
    assert "error: interference/touch-partial" in screen
    assert "ynn_fusion (value 29) live 31-33 bytes [0, 16384)" in screen
    assert max(len(line) for line in screen.split("\n")[1:]) <= 80
    assert len(screen.split("\n")) < 60


def test_many_findings_are_counted_by_rule(run: Run, goldens: Path, tmp_path: Path) -> None:
    folder = broken(goldens, tmp_path / "dump")
    text = folder / "buffer-assignment.txt"
    text.write_text(text.read_text().replace("size=4,", "size=3,"))
    screen = run("verify", folder, "--backend", "cpu").out.decode()
    assert "all findings, by rule" in screen
    assert "geometry/size-not-of-shape" in screen


def test_json_and_sarif(run: Run, goldens: Path, tmp_path: Path) -> None:
    folder, sarif = broken(goldens, tmp_path / "dump"), tmp_path / "out.sarif"
    result = run("verify", folder, "--json", "--sarif", sarif)
    assert result.code == 1
    verdict = json.loads(result.out)
    assert verdict["schema"] == "hlomem/1"
    assert "interference/touch-partial" in {each["rule"] for each in verdict["findings"]}
    (only,) = json.loads(sarif.read_text())["runs"]
    assert len(only["results"]) == len(verdict["findings"])
    again = run("verify", folder, "--sarif", sarif)
    assert again.code == 2
    assert "--force" in again.err


def test_large_numbers_are_written(run: Run, goldens: Path, tmp_path: Path) -> None:
    folder = broken(goldens, tmp_path / "dump")
    text = folder / "buffer-assignment.txt"
    text.write_text(text.read_text().replace("offset=64)", f"offset={2**62})"))
    result = run("verify", folder, "--json")
    assert result.code == 1
    assert str(2**62) in result.out.decode()


def test_wrong_arguments_are_said(run: Run, goldens: Path) -> None:
    assert run("verify", goldens / SEED, "--chip", "v9").code == 2
    assert run("verify", goldens / SEED, "--chip", "v5p").code == 0
    assert run("verify", goldens / SEED, "--backend", "tpu").code == 2
    assert run("verify", goldens / SEED, "--backend", "tpu", "--chip", "v5p").code == 0
    assert run("verify", goldens / SEED, "--hlo", goldens / SEED).code == 3
    module = goldens / SPLIT / "module.hlo"
    assert run("verify", goldens / SPLIT, "--hlo", module).code == 0


def test_standard_input_has_no_module_beside_it(run: Run, goldens: Path) -> None:
    result = run("verify", "-", stdin=(goldens / SEED).read_bytes())
    assert result.code == 0
    assert b"there is no module" in result.out


def test_of_several_dumps_the_largest_is_verified_and_named(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    text = (goldens / SPLIT / "buffer-assignment.txt").read_text()
    (tmp_path / "a-buffer-assignment.txt").write_text(text)
    (tmp_path / "b-buffer-assignment.txt").write_text("BufferAssignment:\n")
    result = run("verify", tmp_path)
    assert result.code == 0
    title = "a, the largest of 2 programs; --module chooses another\n"
    assert result.out.decode().startswith(title)
    assert run("verify", tmp_path, "--module", "b").out.decode().startswith("b\n")
    assert run("verify", tmp_path / "b-buffer-assignment.txt").code == 0
