"""The reports' commands from outside: what they take, what they print, how they fail."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.places import ROOT

SEED = "seeds/003_e0d5fae9bf2de249.txt"
SPLIT = "xla/jaxlib-0.12.0.1/cpu/nested_while"
COMMANDS = {
    "summary": (),
    "peak": (),
    "padding": (),
    "copies": (),
    "donate": (),
    "holes": (),
    "explain": ("copy.3",),
}
IN_SPLIT = {**COMMANDS, "explain": ("ynn_fusion",)}


@pytest.mark.parametrize("command", COMMANDS)
def test_text_is_plain_and_fits_80_columns(run: Run, goldens: Path, command: str) -> None:
    result = run(command, goldens / SEED, *COMMANDS[command])
    assert (result.code, result.err) == (0, "")
    screen = result.out.decode()
    assert max(map(len, screen.split("\n")[1:])) <= 80
    assert "\x1b" not in screen


@pytest.mark.parametrize("command", COMMANDS)
def test_json_names_its_schema_and_kind(run: Run, goldens: Path, command: str) -> None:
    result = run(command, goldens / SPLIT, *IN_SPLIT[command], "--json")
    content = json.loads(result.out)
    assert content["schema"] == "hlomem/1"
    assert content["kind"] == {"explain": "explanation"}.get(command, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dump_may_come_in_any_wrapping(
    run: Run, goldens: Path, tmp_path: Path, command: str
) -> None:
    expected = run(command, goldens / SEED, *COMMANDS[command]).out.split(b"\n", 1)[1]
    data = (goldens / SEED).read_bytes()
    (tmp_path / "dump.txt.gz").write_bytes(gzip.compress(data))
    arguments = COMMANDS[command]
    assert run(command, "-", *arguments, stdin=data).out.split(b"\n", 1)[-1] == expected
    packed = run(command, tmp_path / "dump.txt.gz", *arguments).out
    assert packed.split(b"\n", 1)[-1] == expected
    assert run(command, tmp_path, *arguments).out.split(b"\n", 1)[-1] == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_is_planned_first(run: Run, goldens: Path, command: str) -> None:
    module = goldens / SPLIT / "module.hlo"
    planned = run(command, module, *IN_SPLIT[command], "--json")
    assert planned.code == 0
    read = run(command, goldens / SPLIT, *IN_SPLIT[command], "--json")
    ours, theirs = json.loads(planned.out), json.loads(read.out)
    for name in ("name", "notes", "era"):
        ours.pop(name, None)
        theirs.pop(name, None)
    if command == "peak":
        ours.pop("printed")
        theirs.pop("printed")
    if command == "summary":
        ours["peak"].pop("name")
        theirs["peak"].pop("name")
    assert ours == theirs


def test_a_module_is_planned_as_plan_plans_it(run: Run, goldens: Path) -> None:
    swap = goldens / "xla" / "jaxlib-0.11.2" / "gpu-h200" / "donate_swap"
    planned = json.loads(run("peak", swap / "module.hlo", "--backend", "gpu", "--json").out)
    assert planned["size"] == json.loads(run("peak", swap, "--json").out)["size"]
    chipless = run("peak", swap / "module.hlo", "--backend", "tpu")
    assert chipless.code == 2
    assert "as the chip" in chipless.err
    old = goldens / "xla" / "jaxlib-0.4.13" / "cpu" / "nested_while"
    era = ("--era", "jaxlib-0.4.13", "--schedule", old)
    planned = json.loads(run("peak", old / "module.hlo", *era, "--json").out)
    assert planned["size"] == json.loads(run("peak", old, "--json").out)["size"]
    assert "`schedule` is for an HLO module" in run("peak", old, "--schedule", old).err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_memory_space_is_chosen_by_name_or_color(run: Run, goldens: Path, command: str) -> None:
    arguments = COMMANDS[command]
    named = run(command, goldens / SEED, *arguments, "--space", "vmem", "--json").out
    assert named == run(command, goldens / SEED, *arguments, "--space", "1", "--json").out
    wrong = run(command, goldens / SEED, *arguments, "--space", "moon")
    assert wrong.code == 2
    assert "no memory space `moon`" in wrong.err


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_is_refused_in_words(run: Run, tmp_path: Path, command: str) -> None:
    arguments = COMMANDS[command]
    assert run(command, tmp_path / "missing", *arguments).code == 3
    (tmp_path / "x.txt").write_text("BufferAssignment:\nallocation 0: size x\n")
    broken = run(command, tmp_path / "x.txt", *arguments)
    assert broken.code == 3
    assert "x.txt:2:" in broken.err
    empty = run(command, "-", *arguments, stdin=b"BufferAssignment:\n")
    assert empty.code == 3
    assert "no allocation" in empty.err
    assert run(command).code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_live_ranges_alone_are_refused_with_the_file_that_is_missing(
    run: Run, goldens: Path, tmp_path: Path, command: str
) -> None:
    shutil.copy(goldens / SPLIT / "live-range.txt", tmp_path)
    result = run(command, tmp_path / "live-range.txt", *COMMANDS[command])
    assert result.code == 3
    assert "*-buffer-assignment.txt" in result.err


def test_options_that_do_not_go_together(run: Run, goldens: Path) -> None:
    assert "`era` is for an HLO module" in run("peak", goldens / SEED, "--era", "K").err
    assert "no rules for chip `v9`" in run("peak", goldens / SEED, "--chip", "v9").err
    assert run("peak", goldens / SEED, "--chip", "v5p").code == 0
    assert run("peak", goldens / SEED, "--backend", "tpu", "--chip", "v5p").code == 0
    dump = run("peak", goldens / SPLIT, "--hlo", goldens / SEED)
    assert dump.code == 3
    assert "this is a dump" in dump.err


def test_control_characters_of_a_dump_do_not_reach_the_terminal(run: Run, goldens: Path) -> None:
    text = (goldens / SEED).read_text().replace("copy.3", "cop\x1b[31my.3")
    for command, arguments in (("peak", ()), ("summary", ()), ("copies", ()), ("holes", ())):
        result = run(command, "-", *arguments, stdin=text.encode())
        assert result.code == 0
        assert b"\x1b" not in result.out
    told = run("explain", "-", "cop\x1b[31my.3", stdin=text.encode())
    assert b"\x1b" not in told.out
    missing = run("explain", "-", "cop\x1b[31my.4", stdin=text.encode())
    assert missing.code == 2
    assert "\x1b" not in missing.err


def test_the_module_beside_a_dump_names_lines(run: Run, tmp_path: Path) -> None:
    before = ROOT / "examples" / "oom" / "before"
    assert b"train.py:8" in run("peak", before, "--by", "line").out
    for path in before.glob("*-*.txt"):
        shutil.copy(path, tmp_path)
    assert b"train.py" not in run("peak", tmp_path, "--by", "line").out
    [module] = before.glob("*optimizations.txt")
    assert b"train.py:8" in run("peak", tmp_path, "--by", "line", "--hlo", module).out


def test_arguments_and_scopes_are_trees_of_the_depth_asked_for(run: Run, goldens: Path) -> None:
    dump = (goldens / "trials" / "tpu" / "gpt", "--module", "train_step")
    shallow = run("peak", *dump, "--by", "arg", "--depth", "1").out.decode()
    assert "params\n" in shallow
    assert "block_*" not in shallow
    assert "['block_*']  2 of them" in run("peak", *dump, "--by", "arg").out.decode()
    refused = run("peak", *dump, "--by", "line", "--depth", "1")
    assert refused.code == 2
    assert "`--depth` goes with `--by arg`" in refused.err


def test_piped_output_is_as_wide_as_columns_says(
    run: Run, goldens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = (goldens / "trials" / "tpu" / "gpt", "--module", "train_step", "--by", "buffer")
    narrow = run("peak", *dump).out.decode()
    assert max(map(len, narrow.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    wide = run("peak", *dump).out.decode()
    assert 80 < max(map(len, wide.splitlines())) <= 200
    assert "opt_state_0__mu__embed____embedding__.1" in wide
    for nonsense in ("", "many", "0", "-4"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert max(map(len, run("peak", *dump).out.decode().splitlines())) <= 80
