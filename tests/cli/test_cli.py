"""The command line as a whole: help, versions, exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hlomem import __version__
from hlomem.base.source import INVISIBLE
from hlomem.cli import main
from hlomem.cli.commands import COMMANDS, QUESTIONS
from hlomem.cli.group import commands
from tests.cli.conftest import Run
from tests.places import GOLDENS


def test_help_and_version(run: Run) -> None:
    assert run("--version").out.decode() == f"hlomem {__version__}\n"
    text = run("help", "--all").out.decode()
    assert all(f"  {name} " in text for name in COMMANDS)


def test_help_has_the_main_questions_and_says_where_the_rest_is(run: Run) -> None:
    text = run("--help").out.decode()
    main_ones = [name for group in QUESTIONS.values() for name in group]
    assert [name for name in COMMANDS if f"\n  {name} " in text] == main_ones
    assert f"{len(COMMANDS) - len(main_ones)} more commands: hlomem help --all" in text
    assert run("help").out == run("--help").out
    assert run("help", "diff").out == run("diff", "--help").out
    assert run("help", "nonsense").code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_begins_its_help_with_the_line_in_the_list(name: str, run: Run) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    assert (command.help or "").split("\n")[0] == COMMANDS[name]
    assert run(name, "--help").code == 0


def test_wrong_usage_exits_2(run: Run) -> None:
    for arguments in (["nonsense"], ["fmt"], ["show", "--nonsense", "x"]):
        assert run(*arguments).code == 2


def test_unreadable_input_exits_3_and_says_why(run: Run, tmp_path: Path) -> None:
    missing = run("show", tmp_path / "nothing.txt")
    assert missing.code == 3
    assert "nothing.txt: No such file or directory" in missing.err
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert run("show", empty).code == 3
    assert run("show", tmp_path).code == 3


def test_a_bug_of_ours_exits_4_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what\x1b now")

    monkeypatch.setattr("hlomem.cli.show.load_any", broken)
    assert main(["show", "x.txt"]) == 4
    shown = capsys.readouterr().err
    assert "this is a bug in hlomem" in shown
    assert "ZeroDivisionError: what\\x1b now" in shown
    assert "Traceback" not in shown
    monkeypatch.setenv("HLOMEM_TRACEBACK", "1")
    assert main(["show", "x.txt"]) == 4
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MemoryError(), 3, "error: not enough memory for this input\n"),
        (RecursionError("maximum"), 3, "error: the input is nested too deeply\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "No space left on device"), 3, "error: standard output: No space left"),
        (OSError(5, "Input/output error", "a\x1b"), 3, "error: a\\x1b: Input/output error\n"),
    ],
)
def test_whatever_happens_has_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hlomem.cli.show.load_any", fail)
    result = run("show", "x.txt")
    assert (result.code, result.err[: len(says) or 1]) == (code, says)


def test_control_characters_of_arguments_do_not_reach_the_terminal(run: Run) -> None:
    for arguments in (["\x1b[2J"], ["show", "--\x9b"], ["show", "\u202e"], ["fmt", "\x07"]):
        result = run(*arguments)
        assert result.code in {2, 3}
        assert not re.search(INVISIBLE, result.err.replace("\n", ""))


def test_a_full_disk_behind_standard_output_is_an_error(goldens: Path) -> None:
    dump = goldens / "seeds" / "000_d4bdf7378546cee1.txt"
    for command in (["show"], ["fmt"], ["show", "--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "hlomem", *command, dump],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 3
        assert done.stderr == b"error: standard output: No space left on device\n"


def test_an_interrupt_is_quiet() -> None:
    code = (
        # A process in the background is started with interrupts ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "print(flush=True); import hlomem.__main__ as m; m.sys.exit(m.main(['show', '-']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdin.write(b"x" * 200_000)  # more than a pipe holds: it has begun to read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize("size", ["1000", "1000B", "1k", "1KiB", "1000 b"])
def test_larger_inputs_than_allowed_are_refused(run: Run, goldens: Path, size: str) -> None:
    seed = goldens / "seeds" / "000_d4bdf7378546cee1.txt"
    for command in ("show", "fmt", "verify", "plan"):
        result = run(command, seed, "--max-input", size)
        assert result.code == 3
        assert f"{seed}: more than 10" in result.err
        assert run(command, seed, "--max-input", "2TiB").code != 3 or command == "plan"


@pytest.mark.parametrize("size", ["", "-1", "4 GiBs", "1e9", "٣"])
def test_a_limit_that_is_no_size_is_refused(run: Run, size: str) -> None:
    result = run("show", "x.txt", "--max-input", size)
    assert result.code == 2
    assert "is not a size such as 4GiB or 500M" in result.err


def test_a_closed_pipe_is_quiet(goldens: Path) -> None:
    seeds = sorted((goldens / "seeds").glob("*.txt")) * 200
    process = subprocess.Popen(
        [sys.executable, "-m", "hlomem", "fmt", *map(str, seeds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_process_that_ends_at_once_has_written_everything(goldens: Path, run: Run) -> None:
    module = str(goldens / "xla" / "jaxlib-0.12.0.1" / "cpu" / "m_overlap" / "module.hlo")
    command = [sys.executable, "-m", "hlomem", "plan", module, "--timings"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == run("plan", module).out
    assert done.stderr.endswith(b"ms of CPU time\n")


def test_help_needs_nothing_heavy() -> None:
    code = "import sys, hlomem.cli; hlomem.cli.main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.rsplit("\n", 2)[1]
    for heavy in ("rich", "msgspec", "numpy", "jax", "google.protobuf"):
        assert f"'{heavy}'" not in loaded, heavy


def test_a_slip_in_the_name_of_a_command_is_pointed_out(run: Run) -> None:
    result = run("sumary", "x")
    assert result.code == 2
    assert "No such command 'sumary'. Did you mean summary?" in result.err
    assert "Did you mean" not in run("zzzz").err


def test_help_begins_with_what_users_do() -> None:
    assert next(iter(COMMANDS)) == "compile"
    assert list(COMMANDS)[-6:] == ["plan", "replan", "verify", "pack", "link", "fmt"]


def test_a_log_is_sent_to_the_command_that_reads_it(run: Run, goldens: Path) -> None:
    for command in ("summary", "peak", "show"):
        result = run(command, goldens / "oom/libtpu-0.0.24/temporaries.txt")
        assert result.code == 3
        assert "`hlomem oom`" in result.err


def test_the_first_line_says_which_program_of_several_it_is(run: Run, goldens: Path) -> None:
    folder = goldens / "trials/cpu/gpt"
    for command in ("summary", "peak", "padding", "copies", "donate", "holes", "verify", "advise"):
        first = run(command, folder).out.decode().split("\n")[0]
        assert first == "train_step, the largest of 3 programs; --module chooses another"
    assert json.loads(run("summary", folder, "--json").out)["name"] == "train_step"


def test_plan_takes_the_program_of_a_folder(run: Run, goldens: Path, tmp_path: Path) -> None:
    folder = goldens / "trials/cpu/gpt"
    result = run("plan", folder, "-o", tmp_path / "new")
    assert result.code == 0
    assert "train_step, the largest of 3 programs; --module chooses another" in result.err
    assert f"creating folder {tmp_path / 'new'}" in result.err
    assert [path.name.split(".")[1] for path in (tmp_path / "new").iterdir()] == [
        "jit_train_step"
    ] * 4
    assert run("plan", folder, "--module", "seed", "--json").code == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_no_command_in_a_traceback(closed: str) -> None:
    path = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"
    for words, code in ((f"summary {path}", 0), ("summary -", 3)):
        command = f"{sys.executable} -m hlomem {words} {closed}"
        given = "" if "<" in closed else "</dev/null"
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} {given}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert "bug in hlomem" not in done.stderr
