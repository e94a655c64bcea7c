"""What SECURITY.md promises, as far as no other test holds it."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hlomem.base.source import INVISIBLE
from tests.places import PACKAGE

CONTROLS = Path(__file__).parent / "fuzz" / "cases" / "terminal_controls.txt"
PROGRAM = "xla/jaxlib-0.12.0.1/cpu/nested_while"
RUNS_OR_CONNECTS = {
    *("ctypes", "ftplib", "http", "marshal", "multiprocessing", "pickle", "runpy", "shelve"),
    *("smtplib", "socket", "subprocess", "urllib.request", "webbrowser", "xmlrpc"),
}
MAY_START = {
    "fleet/workers.py": "starts hlomem itself, one process an input",
    "jax/compile/processes.py": "the factory the user names is compiled in a process of its own",
    "jax/probes/parent.py": "the factory the user names is traced in a process of its own",
    "jax/tuned_choices.py": "asks XLA, in a process whose log is read, how it looks choices up",
    "run/child.py": "runs the command the user gives",
    "base/scratch.py": "starts the shell that removes our own temporary folder",
}
"""Modules that start a process, never one that an input names."""
EXCEPTIONS = {
    ("libtpu/pjrt.py", "ctypes"): "calls the libtpu that is installed, in a child of `link`",
    ("jax/trials/called_function.py", "pickle"): "hands the user's own arguments to a child",
    ("jax/kernels/front.py", "pickle"): "hands the user's own kernels to a child",
    ("jax/kernels/measuring.py", "pickle"): "that child",
    ("jax/linking/jax_side.py", "pickle"): "writes what JAX stores; reads nothing by it",
}
"""Modules that import what others may not."""
EVALUATES = {"eval", "exec", "compile", "__import__"}
COMMANDS = [["show"], ["show", "--json"], ["fmt"], ["verify", "--json"]]
COMMANDS += [["plan", "--backend", "cpu"]]

_WATCHED = """
import sys
def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn")):
        raise SystemExit(f"{event} {arguments}")
    if event == "open" and arguments[1] and set(str(arguments[1])) & set("wax+"):
        raise SystemExit(f"{event} {arguments}")
sys.dont_write_bytecode = True
sys.addaudithook(watch)
from hlomem.cli import main
sys.exit(main())
"""


def _path(goldens: Path, command: list[str]) -> Path:
    name = "module.hlo" if command[0] == "plan" else "buffer-assignment.txt"
    return goldens / PROGRAM / name


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_can_run_input_or_connect(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in EVALUATES
        for name in names:
            if name == "subprocess" and str(path.relative_to(PACKAGE)) in MAY_START:
                continue
            if (str(path.relative_to(PACKAGE)), name) in EXCEPTIONS:
                continue
            assert RUNS_OR_CONNECTS.isdisjoint({name, name.partition(".")[0]})


def test_pickle_reads_nothing_but_what_hlomem_wrote_for_its_child() -> None:
    reading = [path for path, _ in EXCEPTIONS if "pickle.load" in (PACKAGE / path).read_text()]
    assert reading == ["jax/trials/called_function.py", "jax/kernels/measuring.py"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_neither_connect_nor_run_nor_write(goldens: Path, command: list[str]) -> None:
    arguments = [sys.executable, "-c", _WATCHED, *command, str(_path(goldens, command))]
    done = subprocess.run(arguments, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_input_gives_the_same_output(goldens: Path, command: list[str]) -> None:
    """Whatever the order of sets, and in every locale."""
    arguments = [sys.executable, "-m", "hlomem", *command, str(_path(goldens, command))]
    outputs = {
        subprocess.run(
            arguments, env={**os.environ, **changed}, capture_output=True, check=True
        ).stdout
        for changed in (
            {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8"},
            {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
    }
    assert len(outputs) == 1


def test_a_terminal_gets_only_what_is_safe_to_see() -> None:
    terminal, end = pty.openpty()
    arguments = [sys.executable, "-m", "hlomem", "fmt", str(CONTROLS)]
    done = subprocess.run(arguments, stdout=end, check=False)
    os.close(end)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert done.returncode == 0
    assert r"a\x9b2J\u202e\u2028\x7f (100.0%" in shown
    assert not re.search(INVISIBLE, shown.replace("\r\n", ""))
