"""Constraints in source: values that are not used, and functions that are told what to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.jax.trials.constraint_source import (
    asks_what_divides,
    is_asked_by_caller,
    unused_constraints,
    use_constraints,
)
from hlomem.jax.trials.source_edits import SourceFile, apply

CODE = """import jax
from jax.lax import with_sharding_constraint


def split(x, s):
    return with_sharding_constraint(x, s)


def rows(x):
    return with_sharding_constraint(x, ROWS)


def around(mesh):
    def inner(x, kind):
        return with_sharding_constraint(x, SPECS[kind])

    return inner


def by_name(x, mesh, *axes):
    spec = [axis for axis in axes]
    return with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def f(a, b, c, tree, s):
    with_sharding_constraint(a, s)
    split(b, s)
    unused = with_sharding_constraint(c, s)
    jax.tree.map(lambda leaf: with_sharding_constraint(leaf, s), tree)
    print(a)
    a = with_sharding_constraint(a, s)
    used = split(b, s)
    while used:
        used = again
        again = split(used, s)
    return a, used
"""


@pytest.fixture
def file(tmp_path: Path) -> SourceFile:
    (tmp_path / "code.py").write_text(CODE)
    return SourceFile(str(tmp_path / "code.py"))


def _line(text: str) -> int:
    return CODE[: CODE.index(text)].count("\n") + 1


def test_constraints_whose_values_nobody_reads_are_told(file: SourceFile) -> None:
    told = [unused.call.lineno for unused in unused_constraints(file)]
    first = _line("    with_sharding_constraint(a, s)\n    split")
    assert sorted(told) == [first, first + 1, first + 2, first + 3]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("    with_sharding_constraint(a, s)\n    split", "    a = with_sharding_constraint(a, s)"),
        ("    split(b, s)", "    b = split(b, s)"),
        ("    unused = with", "    c = unused = with_sharding_constraint(c, s)"),
        ("    jax.tree.map", "    tree = jax.tree.map("),
    ],
)
def test_their_values_are_assigned_to_what_they_are_put_on(
    file: SourceFile, text: str, made: str
) -> None:
    [changed] = (apply(use_constraints(file, _line(text))) or {}).values()
    assert changed.splitlines()[_line(text) - 1].startswith(made)


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("        return with_sharding_constraint(x, SPECS", True),
        ("    return with_sharding_constraint(x, s)", True),
        ("    return with_sharding_constraint(x, ROWS)", False),
        ("    return with_sharding_constraint(x, NamedSharding", True),
        ("    a = with_sharding_constraint(a, s)", False),
    ],
)
def test_a_function_that_is_told_a_sharding_asks_for_its_caller(
    file: SourceFile, text: str, is_asked: bool
) -> None:
    assert is_asked_by_caller(file.file, _line(text)) == is_asked


DIVIDING = """def fits(shape, spec):
    return [axis if size % SIZES[axis] == 0 else None for size, axis in zip(shape, spec)]


def split(x, *spec):
    return with_sharding_constraint(x, fits(x.shape, spec))


def whole(x, name):
    print("%s" % name)
    return with_sharding_constraint(x, P())


with_sharding_constraint(x, P())
"""


def test_functions_that_may_leave_out_an_axis_are_known(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(DIVIDING)
    lines = [2, 6, 11, 14]
    told = [asks_what_divides(str(tmp_path / "code.py"), line) for line in lines]
    assert told == [True, True, False, False]
    assert not asks_what_divides(str(tmp_path / "no_such.py"), 1)
