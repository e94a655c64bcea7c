"""Another value of an expression, as an edit of the source or in words."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from hlomem.jax.probes.deciding import Decided
from hlomem.jax.probes.instrument import Key
from hlomem.jax.probes.levers import Seen
from hlomem.jax.trials.source_edits import apply
from hlomem.jax.trials.value_edits import edits_of, told

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.jax.probes.levers import ValueKind

HEAD = """from jax.sharding import NamedSharding, PartitionSpec as P

"""


def _decided(file: Path, code: str, expression: str, kind: ValueKind, change: str) -> Decided:
    """A change of an expression of a line of code, which is written to a file."""
    file.write_text(f"{HEAD}{code}\n")
    tree = ast.parse(file.read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    node = next(one for one in nodes if ast.get_source_segment(file.read_text(), one) == expression)
    end = node.end_lineno or 0, node.end_col_offset or 0
    key = Key(str(file), node.lineno, node.col_offset, *end, "constant")
    seen = Seen(key=key.text(), kind=kind, text="", last=1)
    return Decided(key=key, change=change, seen=seen, is_wanted=True)


@pytest.mark.parametrize(
    ("code", "expression", "kind", "change", "expected"),
    [
        ('axis = "tensor"', '"tensor"', "text", "axis:tp", 'axis = "tp"'),
        ("axis = 'tensor'", "'tensor'", "text", "axes:a,b", "axis = ('a', 'b')"),
        ("spec = P(None, 'x')", "None", "none", "axis:y", "spec = P('y', 'x')"),
        ("size = 1001", "1001", "number", "number:1008", "size = 1008"),
        (
            'SAVED = ("attended", "fetched")',
            '"fetched"',
            "text",
            "drop:fetched",
            'SAVED = ("attended",)',
        ),
        ('kept = "a", "w", "b"', '"w"', "text", "drop:w", 'kept = "a", "b"'),
        ('kept = ["w"]', '"w"', "text", "drop:w", "kept = []"),
        ('axes = ("data",)', '("data",)', "names", "add:fsdp", 'axes = ("data", "fsdp")'),
        ("spec = P()", "P()", "spec", "spec:P('x', None)", "spec = P('x')"),
        (
            "s = NamedSharding(mesh, P())",
            "NamedSharding(mesh, P())",
            "sharding",
            "spec:P('x')",
            "s = NamedSharding(mesh, P('x'))",
        ),
        ("s = whole", "whole", "sharding", "spec:P('x')", "s = NamedSharding(whole.mesh, P('x'))"),
    ],
)
def test_a_value_is_written_where_it_stands(
    tmp_path: Path, code: str, expression: str, kind: ValueKind, change: str, expected: str
) -> None:
    found = _decided(tmp_path / "model.py", code, expression, kind, change)
    assert apply(edits_of(found)) == {found.key.file: f"{HEAD}{expected}\n"}


@pytest.mark.parametrize(
    ("code", "expression", "kind", "change", "words"),
    [
        ("a = n % 8 == 0", "n % 8 == 0", "test", "true:", "as if `n % 8 == 0` were True"),
        (
            "t = {'a': P()}",
            "{'a': P()}",
            "rules",
            "add:w=P('x')",
            "{'a': P()} with w as P('x'), too",
        ),
        ("f = re.match", "re.match", "match", "search:", "re.search instead of re.match"),
        ("p = policy()", "policy()", "policy", "unname:w", "without 'w'"),
    ],
)
def test_what_no_edit_says_is_told_in_words(
    tmp_path: Path, code: str, expression: str, kind: ValueKind, change: str, words: str
) -> None:
    found = _decided(tmp_path / "model.py", code, expression, kind, change)
    assert edits_of(found) == []
    assert told(found) == f"at {found.key.file}:3:\n{words}"


def test_a_value_that_only_one_call_is_to_have_is_no_edit(tmp_path: Path) -> None:
    found = _decided(tmp_path / "model.py", "s = P()", "P()", "spec", "spec:P('x')")
    found = found._replace(site="train.py:7")
    assert edits_of(found) == []
    assert told(found) == f"at {found.key.file}:3, as train.py:7 calls it:\nP('x') instead of `P()`"
