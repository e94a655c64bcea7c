"""Commands read without click: the words mean what click says they mean."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.cli.parameters import Command

LEAN = ("plan", "summary", "verify")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_step"


def _command(name: str) -> Command:
    found = import_module(f"hlomem.cli.{name}").command
    assert isinstance(found, Command)
    return found


def _read_by_click(command: Command, words: list[str]) -> dict[str, Any] | None:
    try:
        return dict(command.to_click().make_context(command.name, list(words)).params)
    except (click.ClickException, click.exceptions.Exit):
        return None


_NAMES = [name for each in map(_command, LEAN) for own in each.parameters for name in own.names]
_WORDS = st.one_of(
    st.sampled_from([*_NAMES, "cpu", "gpu", "xla", "text", "-", "--", "-h", "a.hlo", "", "-x"]),
    st.tuples(st.sampled_from(_NAMES), st.sampled_from(["cpu", "", "-", "a=b"])).map("=".join),
    st.text(max_size=4),
)


@given(st.sampled_from(LEAN), st.lists(_WORDS, max_size=6))
def test_words_read_without_click_mean_what_click_reads(name: str, words: list[str]) -> None:
    command = _command(name)
    read = command.read(words)
    assert read is None or read == _read_by_click(command, words)


@pytest.mark.parametrize(
    "words",
    [
        ["a.hlo"],
        ["-"],
        ["a.hlo", "--backend", "gpu", "--chip=h200", "--json"],
        ["--module", "step", "a.hlo"],
    ],
)
@pytest.mark.parametrize("name", LEAN)
def test_plain_words_are_read_without_click(name: str, words: list[str]) -> None:
    assert _command(name).read(words) == _read_by_click(_command(name), words) is not None


@pytest.mark.parametrize("name", LEAN)
def test_help_and_mistakes_are_left_to_click(name: str) -> None:
    for words in ([], ["--help"], ["a", "b"], ["a", "--backend", "vax"], ["a", "--nonsense"]):
        assert _command(name).read(words) is None


HEAVY = {"click", "rich", "json", "dataclasses", "difflib", "hlomem.proto.find"}
FOR_DUMPS = {"pathlib", "hlomem.api.folder", "hlomem.dump.parts", "hlomem.report"}
"""All that a plan of a text does without."""


@pytest.mark.parametrize("name", LEAN)
def test_a_small_module_waits_for_no_import_it_does_not_need(name: str) -> None:
    subject = next(EXAMPLE.glob("*optimizations.txt")) if name == "plan" else EXAMPLE
    heavy = HEAVY | FOR_DUMPS if name == "plan" else HEAVY
    code = (
        "import sys; from hlomem.cli import main; main(sys.argv[1:]);"
        f"assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()"
    )
    command = [sys.executable, "-S", "-c", code, name, str(subject)]
    path = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=path, check=False)
    assert done.returncode == 0, done.stderr
