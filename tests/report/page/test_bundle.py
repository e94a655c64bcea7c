"""The report's scripts as one: each with its own scope, none lost, nothing but spaces left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlomem.report.page import html as report_bundle
from hlomem.report.page.html import EXPORT, IMPORT, TEMPLATES, bundle

MODULES = sorted(TEMPLATES.glob("*.js"))
_COLUMNS = 100


def _bundle(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    monkeypatch.setattr(report_bundle, "TEMPLATES", folder)
    return bundle(next(iter(texts)))


def test_a_module_comes_once_and_after_those_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _bundle(
        tmp_path,
        monkeypatch,
        top='import { one } from "./left.js";\nimport { two } from "./right.js";\none(two);\n',
        left='import { two } from "./right.js";\nexport function one() {\n  return two;\n}\n',
        right="export const two = 2;\n",
    )
    assert re.findall(r"^modules\.(\w+)=", made, re.MULTILINE) == ["right", "left", "top"]
    assert "const{two}=modules.right;" in made
    assert "return{two}" in made


@pytest.mark.parametrize(
    "literal",
    ['"a // b, c"', "`${a} = {  } `", '"\\" , "', 'f(/a, b \\/ "/)', '"/* no  comment */"', "`…`"],
)
def test_literals_are_left_alone(
    literal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'// before\nconst a = {literal}; // it\'s a "comment"\n/** and\n `one` */\nuse(a);\n'
    made = _bundle(tmp_path, monkeypatch, main=text)
    assert f"={literal};use(a);" in made.replace("\n", "")
    assert "comment" not in made.replace(literal, "")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_are_written_as_bundling_needs_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n")
    assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text))
    assert len(re.findall(r"^export\b", text, re.MULTILINE)) == len(EXPORT.findall(text))
    assert not re.search(r"\bimport\(|\bexport default\b|\0|[+-] [+-]", text)
    for line in text.split("\n"):
        assert len(line) <= _COLUMNS
        assert line.count("`") % 2 == 0, "templates lie on one line"
        assert not re.search(r"`[^`]*\$\{[^}`]*`", line), "templates lie not in each other"


def test_every_module_is_in_the_bundle() -> None:
    made = "\n".join(map(bundle, ("page", "fleet")))
    found = set(re.findall(r"^modules\.(\w+)=", made, re.MULTILINE))
    assert sorted(found) == [path.stem for path in MODULES]
    assert not re.search(r"^(?:import|export)\b", made, re.MULTILINE)
