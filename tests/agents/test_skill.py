"""The skill: found, copied, and true of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from hlomem.agents.skill import copy_skill, find_skill
from hlomem.cli import main
from hlomem.cli.commands import COMMANDS
from hlomem.cli.group import commands
from tests.places import ROOT

PAGES = sorted((ROOT / "skills" / "hlomem").rglob("*.md"))
_LINE = re.compile(r"`?hlomem ([a-z]+)((?: [^`\n#|]*)?)")


def test_the_command_says_where_it_is_and_copies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == f"{find_skill()}\n"
    assert main(["skill", "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'hlomem'}\n"
    copied = {path.relative_to(tmp_path / "hlomem") for path in tmp_path.rglob("*.md")}
    assert copied == {path.relative_to(find_skill()) for path in PAGES}
    assert main(["skill", "--to", str(tmp_path)]) == 2
    assert copy_skill(tmp_path, force=True) == tmp_path / "hlomem"


def test_the_front_matter_names_it() -> None:
    head = (find_skill() / "SKILL.md").read_text().split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == "hlomem"
    assert 50 < len(fields["description"]) <= 1024


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_and_options_on_its_pages_exist(page: Path) -> None:
    text = page.read_text()
    for name, rest in _LINE.findall(text):
        assert name in COMMANDS, f"hlomem {name}"
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        known = {flag for option in command.params for flag in option.opts}
        own = rest.split(" -- ")[0]
        assert set(re.findall(r"(?<=\s)--?[a-z-]+", own)) <= known | {"--help"}, (name, rest)
    for link in re.findall(r"\]\(([^)]+\.md)\)", text):
        assert (page.parent / link).is_file()
