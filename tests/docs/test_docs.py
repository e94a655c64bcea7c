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
from hlomem.api.load import read_source
from hlomem.cli.commands import COMMANDS
from hlomem.dump.eras import ERAS
from hlomem.packer.table import read_problem
from tools.build_site import with_help
from tools.documents import DOCUMENTS, ROOT, Block, blocks
from tools.shown import MAKERS
from tools.update_docs import rendered

PROJECTS = ROOT / "tests/docs/projects"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_shown_commands_print_what_is_shown(document: Path) -> None:
    text = document.read_text()
    assert rendered(text) == text, "run `python -m tools.update_docs`"


PYTHON = [
    block
    for block in blocks()
    if block.language == "python" and not block.marker and not block.need
]
KNOWN = {("console", ""), ("python", ""), ("pycon", "")}
"""Languages that are run without a marker."""


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_python_examples_run(block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block.place}: {done.stderr}"


def test_every_block_is_run_made_or_checked() -> None:
    for block in blocks():
        kind, _, rest = block.marker.partition(" ")
        match kind, block.language:
            case "", language:
                assert (language, "") in KNOWN, f"{block.place}: how is it known to be true?"
            case "made", _:
                assert rest.removeprefix("by ") in MAKERS, block.place
            case "in", "sh":
                assert (PROJECTS / rest).is_dir(), block.place
            case "file", _:
                path, _, project = rest.partition(" of ")
                assert (PROJECTS / project).is_dir(), block.place
                assert not (PROJECTS / project / path).exists(), block.place
            case "checked", _:
                file, _, name = rest.removeprefix("by ").partition("::")
                text = (ROOT / file).read_text()
                assert not name or f"def {name}(" in text, block.place
            case "read", "text":
                assert rest == "back", block.place
            case "not", _:
                assert rest.startswith("run: "), block.place
            case _:
                pytest.fail(f"{block.place}: the marker `{block.marker}` is not known")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_stands_in_fences_where_it_is_seen(document: Path) -> None:
    outside = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"\n\n    .*", outside)


def test_what_is_shown_of_a_dump_can_be_read_and_printed_back(tmp_path: Path) -> None:
    texts = [block.text for block in blocks() if block.marker == "read back"]
    assert len(texts) == 3
    names = ("buffer-assignment", "values", "live-range")
    for name, text in zip(names, texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    dump = hlomem.load(tmp_path)
    assert sorted(dump.texts().values()) == sorted(texts)


def _shown(document: str, language: str) -> str:
    """The block of a language that a test of this file holds."""
    [block] = [
        block
        for block in blocks()
        if (block.document, block.language) == (document, language)
        and block.marker.startswith("checked by tests/docs/test_docs.py")
    ]
    return block.text


def test_the_story_begins_with_the_error_of_the_example() -> None:
    error = (ROOT / "examples/oom/error.txt").read_text()
    words = _shown("oom.md", "text").split()
    assert " ".join(words) in " ".join(error.split())


def test_the_fix_changes_lines_of_the_example() -> None:
    program = (ROOT / "examples/oom/train.py").read_text().splitlines()
    lines = _shown("oom.md", "diff").splitlines()
    old = [line[1:] for line in lines if line[:1] in {" ", "-"} and line.strip()]
    assert len(old) > 2
    assert set(old) <= set(program)
    after = next((ROOT / "examples/oom/after").glob("*after_optimizations.txt")).read_text()
    assert "checkpoint" in after
    assert "input_output_alias" in after


def test_the_drawn_heaps_are_those_of_the_example() -> None:
    drawing = _shown("packing.md", "text")
    rows = re.findall(r"^([a-e]) +(\d+) +(\d+) +(\d+) MiB", drawing, re.MULTILINE)
    table = (ROOT / "examples/packing/gated_mlp.csv").read_text().split()[1:]
    assert [
        f"{name},{lower},{upper},{int(size) << 20}" for name, lower, upper, size in rows
    ] == table
    problem = read_problem(read_source(ROOT / "examples/packing/gated_mlp.csv"))
    assert f"hlomem pack: {hlomem.pack(problem.buffers).height >> 20} MiB" in drawing


def test_every_command_has_a_section() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert sorted(re.findall(r"^## (.+)$", text, re.MULTILINE)) == sorted(COMMANDS)


def test_a_section_gets_its_help_on_the_site() -> None:
    page = with_help("# Commands\n\n## show\n\nWhat it shows.\n")
    assert "## show\n\n```text\nUsage: hlomem show [OPTIONS]" in page
    assert page.endswith("```\n\nWhat it shows.\n")


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
    names = [word.partition("=")[0].lstrip("*") for word in listed.split(", ")]
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
