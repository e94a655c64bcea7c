"""The documents are true: commands are described, pasted help is current, examples run."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hlomem
from hlomem.cli import COMMANDS
from hlomem.dump.eras import ERAS
from tools.update_docs import DOCUMENTS, ROOT, rendered


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_shown_commands_print_what_is_shown(document: Path) -> None:
    text = document.read_text()
    assert rendered(text) == text, "run `python -m tools.update_docs`"


PYTHON = [
    (path.name, block)
    for path in DOCUMENTS
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("document", "code"), PYTHON)
def test_python_examples_run(document: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{document}: {done.stderr}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_its_help(name: str) -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert f"## {name}\n" in text
    assert f"$ hlomem {name} --help\n" in text


def test_every_era_is_in_the_table() -> None:
    text = (ROOT / "docs" / "dump-format.md").read_text()
    for era in ERAS:
        assert era.jaxlib is not None
        releases = " – ".join(dict.fromkeys(era.jaxlib))
        assert f"| {era.letter} | {releases} | {', '.join(era.libtpu)}" in text.replace(
            " |  |", " | |"
        )


def test_no_document_links_to_a_file_that_is_not_there() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


SIGNATURES = re.findall(
    r"^\| `hlomem\.([\w.]+)\(([^`]*)\)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("name", "listed"), SIGNATURES)
def test_functions_take_what_is_listed(name: str, listed: str) -> None:
    home, _, function = f"hlomem.{name}".rpartition(".")
    parameters = inspect.signature(getattr(import_module(home), function)).parameters
    names = [each.partition("=")[0].lstrip("*") for each in listed.split(", ")]
    assert [name for name in names if name not in {"", "/"}] == [*parameters]


def test_every_exported_name_is_listed() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for name in hlomem.__all__:
        assert name == "__version__" or re.search(rf"`[^`]*\b{name}\b[^`]*`", text), name


def test_every_module_that_mirrors_xla_is_listed() -> None:
    text = (ROOT / "docs" / "upstream.md").read_text()
    modules = list((ROOT / "src" / "hlomem").rglob("*.py"))
    home_of = {path: str(path.relative_to(ROOT / "src" / "hlomem")) for path in modules}
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    for folder in re.findall(r"`([\w/]+)/\*`", text):
        named |= {home for home in home_of.values() if home.rpartition("/")[0] == folder}
    mirroring = {home_of[path] for path in modules if "Mirrors" in path.read_text()}
    assert mirroring - named == set()
    assert named - set(home_of.values()) == set()
