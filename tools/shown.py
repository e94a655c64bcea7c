"""Makes the outputs that documents show and no plain command prints: of faults, errors, test runs.

In: the goldens and examples. Out: the text of a block, by the name in its marker (`MAKERS`;
`tools/documents.py`). Folders of the machine are shown as /home/user/project.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tools.documents import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

_GOLDEN = ROOT / "tests/goldens/xla/jaxlib-0.12.0.1/cpu/nested_while"
_RUNS = ROOT / "tests/docs/projects/runs"
FOLDER = "/home/user/project"
"""Where documents say that the user is."""
_MOVED = ("<30 tanh_add_fusion @0> (size=16384,offset=16384)", "(size=16384,offset=64)")
_SHRUNK = ("<52 copy.14 @0> (size=4,offset=0)", "(size=2,offset=0)")
_TORN = ("<78 arg_tuple.5{0} (phi) @0> (size=4,offset=0)", "(size=4,offset=64)")
_MEASURES = """import hlomem

def test_step(hbm):
    hbm.check(hlomem.explain({dump!r}))
"""


def _printed(line: list[str], folder: Path) -> str:
    """What a command prints, run in a folder."""
    piped = {
        name: value
        for name, value in os.environ.items()
        if name not in {"COLUMNS", "XLA_FLAGS", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"}
    }
    done = subprocess.run(
        line,
        capture_output=True,
        cwd=folder,
        env={**piped, "JAX_PLATFORMS": "cpu"},
        check=False,
        timeout=600,
    )
    return (done.stdout + done.stderr).decode().replace(str(folder), FOLDER)


def _finding(fault: tuple[str, str], rule: str, *, has_schedule: bool = False) -> str:
    """What `hlomem verify` finds by a rule in a golden with one place changed."""
    old, place = fault
    new = old[: old.index("(size=")] + place
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path in _GOLDEN.iterdir():
            text = path.read_text(encoding="utf-8")
            (folder / path.name).write_text(text.replace(old, new), encoding="utf-8")
        line = [sys.executable, "-m", "hlomem", "verify", ".", "--backend", "cpu"]
        screen = _printed(line, folder)
    start = screen.index(f"error: {rule}")
    finding = screen[start:].partition("\n\n")[0].rstrip()
    schedule = re.search(r"\n[ ┌│└]+\d+  .*", finding, re.DOTALL)
    if schedule is None:
        raise ValueError(f"{rule}: the finding shows no schedule")
    return f"{finding if has_schedule else finding[: schedule.start()]}\n"


def _moved_with_schedule() -> str:
    lines = _finding(_MOVED, "interference/touch-partial", has_schedule=True).splitlines()
    *_, last_fact = (number for number, line in enumerate(lines) if line.startswith("  - "))
    return "\n".join([*lines[:2], "  ...", *lines[last_fact:], ""])


def _failure_against_a_baseline() -> str:
    """The summary of a test run whose program has grown since the baseline was written."""
    examples = ROOT / "examples" / "oom"
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    with TemporaryDirectory() as name:
        path = Path(name) / "test_memory.py"
        path.write_text(_MEASURES.format(dump=str(examples / "after")))
        _printed([*pytest, "--hlomem-update"], Path(name))
        path.write_text(_MEASURES.format(dump=str(examples / "before")))
        screen = _printed(pytest, Path(name))
    found = re.search(r"^hlomem: needs .*\n(?:   .*\n)+", screen, re.MULTILINE)
    if found is None:
        raise ValueError(f"the test did not fail:\n{screen}")
    return f"test_memory.py::test_step\n{found[0]}"


def _run(script: Path, beside: Path | None = None) -> str:
    """What `hlomem run` prints of a script; it may import the program `beside` it."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        for path in filter(None, (script, beside)):
            shutil.copy(path, folder)
        line = [sys.executable, "-m", "hlomem", "run", "--", sys.executable, script.name]
        return _printed(line, folder)


def _note_of_an_error() -> str:
    """The last line of an error of compiling and what `hlomem run` adds."""
    screen = _run(_RUNS / "too_large.py", ROOT / "examples/oom/train.py")
    error = re.search(r"^\S*RuntimeError: .*$", screen, re.MULTILINE)
    if error is None:
        raise ValueError(f"there was no error:\n{screen}")
    summary, mark, note = screen[error.end() :].partition("\nhlomem: train_step needs")
    return f"{error[0]}\n{summary.strip()}{mark}{note}".replace("\n\n", "\n")


def _targets_of_doctor() -> str:
    """What `hlomem doctor` says of targets."""
    screen = _printed([sys.executable, "-m", "hlomem", "doctor"], ROOT)
    return (
        f"$ hlomem doctor\n…\n{screen[screen.index('Compiles for') :].partition(chr(10) * 2)[0]}\n"
    )


def _in_example(*words: str) -> str:
    """What a command prints in the folder of the example that does not fit."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        shutil.copy(ROOT / "examples/oom/train.py", folder)
        screen = _printed([sys.executable, "-m", "hlomem", *words], folder)
    return f"$ hlomem {' '.join(words)}\n{screen}"


def _too_large() -> str:
    """The first lines of a compile, and its peak."""
    words = ("compile", "train.py:make_step", "--target", "tpu-v5e:2x2")
    lines = _in_example(*words).splitlines()
    peak = next(number for number, line in enumerate(lines) if line.startswith("Peak"))
    roles = next(number for number, line in enumerate(lines) if "by role" in line)
    shown = [*lines[:5], "", *lines[roles : roles + 4], "  …", "", *lines[peak : peak + 6], "   …"]
    return "\n".join([*shown, ""])


def _what_fits() -> str:
    """The set of changes that fits, as one diff."""
    words = ("advise", "train.py:make_step", "--target", "tpu-v5e:2x2", "--fit", "v5e")
    screen = _in_example(*words)
    command, _, _ = screen.partition("\n")
    found = screen[screen.index("  fits 15.75 GiB") :]
    return f"{command}\n…\n{found.partition(chr(10) + 'note')[0].rstrip()}\n"


MAKERS: dict[str, Callable[[], str]] = {
    "a moved value": lambda: _finding(_MOVED, "interference/touch-partial"),
    "a moved value and its schedule": _moved_with_schedule,
    "a shrunk value": lambda: _finding(_SHRUNK, "geometry/size-not-of-shape"),
    "a torn value": lambda: _finding(_TORN, "alias/torn"),
    "a failure against a baseline": _failure_against_a_baseline,
    "a run that does not fit": _note_of_an_error,
    "a run": lambda: _run(_RUNS / "train.py"),
    "targets of doctor": _targets_of_doctor,
    "a program that does not fit": _too_large,
    "the changes that fit": _what_fits,
}
"""Who makes which block."""
