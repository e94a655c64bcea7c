"""`hlomem show` from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.conftest import Run

if TYPE_CHECKING:
    from pathlib import Path

SEED = "seeds/003_e0d5fae9bf2de249.txt"
SPLIT = "xla/jaxlib-0.12.0.1/cpu/nested_while"


def test_one_screen_of_a_dump_of_one_file(run: Run, goldens: Path) -> None:
    result = run("show", goldens / SEED)
    screen = result.out.decode()
    assert result.code == 0
    assert "era B (libtpu 0.0.2)" in screen
    assert "Needs 1.26 GiB of HBM in 6 allocations" in screen
    assert "XLA's own list 961.3 MiB at instruction 14 of 17, reshape.6" in screen
    assert "flax/linen/linear.py:663" in screen


def test_piped_output_has_80_columns_and_no_colour(run: Run, goldens: Path) -> None:
    for dump in (
        goldens / SEED,
        goldens / SPLIT,
        goldens / "xla/libtpu-0.0.51/tpu-v5e/nested_while",
    ):
        screen = run("show", dump).out.decode()
        assert "\x1b" not in screen
        _, *lines = screen.split("\n")
        assert max(len(line) for line in lines) <= 80


def test_a_part_finds_the_others_of_its_dump(run: Run, goldens: Path) -> None:
    from_part = run("show", goldens / SPLIT / "live-range.txt").out
    from_folder = run("show", goldens / SPLIT).out
    assert from_part.split(b"\n", 1)[1] == from_folder.split(b"\n", 1)[1]
    assert b"XLA's own list 80.0 KiB at instruction 33 of 45" in from_folder


def test_a_folder_of_many_is_listed_and_chosen_from(run: Run, goldens: Path) -> None:
    folder = goldens / "trials/cpu/gpt"
    listed = run("show", folder)
    assert listed.code == 0
    assert listed.out.decode().split("\n")[1:] == [
        "    1.22 GiB  train_step",
        "        12 B  _threefry_seed",
        "         8 B  stage",
        "",
    ]
    assert run("show", folder, "--module", "seed").out.startswith(b"_threefry_seed\n")
    several = run("show", folder, "--module", "jit")
    assert several.code == 2
    assert "3 programs match `jit`; the module is one of these:\n    1.22 GiB" in several.err


def test_json_has_every_record_and_names_its_schema(run: Run, goldens: Path) -> None:
    content = json.loads(run("show", "--json", goldens / SPLIT).out)
    assert content["schema"] == "hlomem/1"
    assert content["eras"] == ["K"]
    assert [file["kind"] for file in content["files"]] == [
        "assignment",
        "values",
        "live-range",
        "report",
    ]
    assert content["assignment"]["allocations"][0]["size"] == 16384
    assert content["values"]["values"][0]["positions"] == [
        {"instruction": "reduce_max.3", "index": None}
    ]
    assert content["live_ranges"]["ranges"][0]["end"] == 32
    assert content["report"]["spaces"][0]["total_bytes"] == 65812
    needs = content["overview"]["needs"]
    assert sum(kind["size"] for kind in content["overview"]["kinds"]) == needs == 65800
    assert content["overview"]["total"] == 65812


def test_json_survives_bytes_that_are_not_utf8(run: Run, goldens: Path, tmp_path: Path) -> None:
    dump = tmp_path / "latin.txt"
    dump.write_bytes((goldens / SEED).read_bytes().replace(b'op_name="args[0]"', b'op_name="\xe9"'))
    content = json.loads(run("show", "--json", dump).out)
    assert any("not UTF-8" in note["text"] for note in content["notes"])
    assert "\\xe9" in content["values"]["values"][4]["instruction"]


def test_names_from_a_dump_cannot_reach_the_terminal_raw(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    dump = tmp_path / "evil.txt"
    text = (goldens / SEED).read_text().replace('op_name="args[0]"', r'op_name="\033[2J\u202e"')
    dump.write_text(text.replace("source_line=663", "source_line=663").replace("linen", "\x9b31m"))
    screen = run("show", dump).out.decode()
    assert not {"\x1b", "\x9b", "\u202e"} & set(screen)


def test_a_module_is_shown_and_is_json(run: Run, goldens: Path) -> None:
    path = goldens / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while" / "module.hlo"
    shown = run("show", path)
    content = json.loads(run("show", path, "--json").out)
    assert shown.code == 0
    assert content["kind"] == "module"
    assert content["name"] in shown.out.decode()
    assert max(map(len, shown.out.decode().splitlines())) <= 80
