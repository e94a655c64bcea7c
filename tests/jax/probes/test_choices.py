"""Words that may stand instead of another, by the text of a program and what it evaluated."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hlomem.jax.probes.choices import choices_of, kept_names
from hlomem.jax.probes.instrument import Key
from hlomem.jax.probes.levers import Seen

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
class Grid(NamedTuple):
    rows: int
    kind: str = "split"

    def spec(self):
        return P() if self.kind == "whole" else {"split": P("x"), "column": P(None, "x")}[self.kind]

GRIDS = {"user": Grid(4096), "item": Grid(2048, "whole"), "day": Grid(8, kind="whole")}
make(GRIDS, title="grids")
x = checkpoint_name(x, "kernel")
"""


def _seen(file: Path) -> list[Seen]:
    """Every word of the program, and the table of specs."""
    file.write_text(PROGRAM)
    found = []
    for node in ast.walk(ast.parse(PROGRAM)):
        if not isinstance(node, ast.Constant | ast.Dict) or node.end_lineno is None:
            continue
        assert node.end_col_offset is not None
        key = Key(str(file), node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, "")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(Seen(key=key.text(), kind="text", text=node.value, last=1))
        elif isinstance(node, ast.Dict) and "P" in ast.unparse(node):
            found.append(Seen(key=key.text(), kind="rules", text="split\t*\ncolumn\t*", last=1))
    return found


def _of(file: Path, line: int, text: str) -> list[str]:
    seen = _seen(file)
    [key] = [
        one.key
        for one in seen
        if one.text == text and f"|{line}|" in one.key.removeprefix(str(file))
    ]
    return list(choices_of(seen).get(key, ()))


def test_the_values_of_a_field_stand_for_one_another_however_they_are_given(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    assert _of(file, 4, "split") == ["whole", "column"]  # the default; a row of the table
    assert _of(file, 7, "whole") == ["split"]  # what the field is compared with


def test_words_of_tables_and_of_nothing_else_have_no_other(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    assert _of(file, 10, "grids") == []
    assert _of(file, 7, "column") == []


def test_names_that_values_are_given_for_policies_are_known(tmp_path: Path) -> None:
    assert kept_names(_seen(tmp_path / "program.py")) == ["kernel"]
