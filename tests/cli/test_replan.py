"""`hlomem replan` from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hlomem.assign import packing
from tests.cli.conftest import Run

SEED = "seeds/003_e0d5fae9bf2de249.txt"
NAMES = {
    "module-buffer-assignment.txt": "buffer-assignment.txt",
    "module-buffer-assignment-values.txt": "values.txt",
    "module-live-range.txt": "live-range.txt",
    "module-memory-usage-report.txt": "memory-usage-report.txt",
}


@pytest.mark.parametrize("number", range(5))
def test_a_seed_is_printed_again(run: Run, goldens: Path, number: int) -> None:
    seed = sorted((goldens / "seeds").glob("*.txt"))[number]
    assert run("replan", seed).out == seed.read_bytes()
    assert run("replan", seed, "--check").code == 0


def test_notes_go_to_standard_error(run: Run, goldens: Path) -> None:
    result = run("replan", goldens / SEED, "--check")
    assert b"same  18 values in 8 allocations, 1.26 GiB\n" in result.out
    assert result.err.startswith("note: planned for tpu-v5p: its layouts are tiled\n")


def test_files_are_those_of_the_dump(run: Run, goldens: Path, tmp_path: Path) -> None:
    entry = goldens / "xla/jaxlib-0.12.0.1/cpu/scalar_only"
    assert run("replan", entry, "-o", tmp_path / "out").code == 0
    made = {path.name.split("-", 1)[1]: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made == {
        long.split("-", 1)[1]: (entry / short).read_bytes() for long, short in NAMES.items()
    }
    assert run("replan", entry, "-o", tmp_path / "out").code == 2
    assert run("replan", entry, "-o", tmp_path / "out", "--force").code == 0


def test_a_changed_dump_is_found_out(run: Run, goldens: Path, tmp_path: Path) -> None:
    text = (goldens / SEED).read_text()
    wrong = tmp_path / "wrong-buffer-assignment.txt"
    wrong.write_text(
        text.replace("(size=168099840,offset=32768)", "(size=168099840,offset=49152)").replace(
            "    pad{}:5-6\n", "    pad{}:5-7\n"
        )
    )
    result = run("replan", wrong, "--check")
    assert result.code == 1
    assert result.out.decode().splitlines()[2:] == [
        "live ranges, line 27",
        "  -     pad{}:5-7",
        "  +     pad{}:5-6",
        "assignment, line 18",
        "  - …: <32 pad @0> (size=168099840,offset=49152): bf16[4,4104,5120]{2,1,0:T(8,12",
        "  + …: <32 pad @0> (size=168099840,offset=32768): bf16[4,4104,5120]{2,1,0:T(8,12",
    ]


def test_json_has_records_notes_and_differences(run: Run, goldens: Path) -> None:
    content = json.loads(run("replan", goldens / SEED, "--json", "--check").out)
    assert content["schema"] == "hlomem/1"
    assert content["kind"] == "replan"
    assert content["differences"] == []
    assert content["notes"][1] == "planned as libtpu-0.0.2"
    assert len(content["values"]["values"]) == 18
    assert "differences" not in json.loads(run("replan", goldens / SEED, "--json").out)


def test_another_chip_has_other_sizes(run: Run, goldens: Path) -> None:
    result = run("replan", goldens / SEED, "--check", "--backend", "tpu", "--chip", "v5e")
    assert result.code == 1
    assert b"assignment, line" in result.out


def test_a_dump_that_no_xla_wrote_is_nothing_to_plan_like(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    new, old = goldens / "xla/jaxlib-0.12.0.1/cpu/scalar_only", "xla/jaxlib-0.5.3/cpu/nested_while"
    shutil.copy(new / "live-range.txt", tmp_path)
    shutil.copy(goldens / old / "memory-usage-report.txt", tmp_path)
    result = run("replan", new, "--like", tmp_path / "live-range.txt")
    assert result.code == 3
    assert "memory-usage-report.txt:1:1: its era is unknown" in result.err


def test_wrong_usage(run: Run, goldens: Path) -> None:
    assert run("replan", goldens / SEED, "--chip", "v9").code == 2
    assert run("replan", goldens / SEED, "--era", "Z").code == 2
    module = goldens / "xla/jaxlib-0.12.0.1/cpu/scalar_only/module.hlo"
    assert run("replan", module).code == 3


def test_the_plan_is_verified_on_demand(run: Run, goldens: Path) -> None:
    seed = next((goldens / "seeds").glob("003*"))
    assert run("replan", seed, "--verify", "--check").code == 0


def test_a_wrong_plan_is_not_written(
    run: Run, goldens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "place", lambda sizes, *_rest: [0 for _ in sizes])
    dump = goldens / "xla/jaxlib-0.12.0.1/cpu/nested_while"
    result = run("replan", dump, "--verify", "-o", tmp_path / "out")
    assert result.code == 1
    assert "interference/overlap" in result.err
    assert not (tmp_path / "out").exists()
