"""The rows of tables and the arguments of calls that decide a sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.jax.trials.rows import Givers, is_assigned, own_words, row_of

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """\
from jax.sharding import PartitionSpec as P

WHOLE = P()
ROWS = P("x", None)


def placement():
    return {
        "user": ROWS,
        "creative": WHOLE,
    }


def other():
    return {**placement(), "creative": ROWS}
"""
CALLS = """\
from jax.sharding import NamedSharding, PartitionSpec as P

SPLIT = P("x", "y")


class Layout:
    def __init__(self, mesh, axes):
        self.out = NamedSharding(mesh, P(*axes))


def build(mesh, axes):
    layout = Layout(mesh, axes)
    return step(layout.out)


def one(mesh):
    return build(mesh, ("x", None))


def two(mesh):
    return build(mesh, axes=SPLIT)
"""


def test_words_are_those_of_arrays_at_fault_alone() -> None:
    faulty = ("params['tables']['creative']", "opt.mu['tables']['creative']")
    assert own_words(faulty, ["params['tables']['user']"]) == {"creative"}
    assert own_words((), ["params"]) == set()


def test_the_row_that_gives_the_sharding_at_fault_is_found(tmp_path: Path) -> None:
    file = tmp_path / "table.py"
    file.write_text(TABLE)
    assert row_of([str(file)], {"creative"}, "P()") == f"{file}:10"
    assert row_of([str(file)], {"creative"}, "P('x')") == f"{file}:15"
    assert not row_of([str(file)], {"creative"}, "P('y')")
    assert not row_of([str(tmp_path / "missing.py")], {"creative"}, "P()")


def test_who_gives_a_line_its_axes_is_found_through_constructors(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    executed = {f"{file}:{line}" for line in (8, 12, 13, 17)}
    assert Givers(executed, {"x", "y"}).of(f"{file}:8", ()) == (f"{file}:17",)
    assert Givers(executed, {"x", "y"}).of(f"{file}:13", ()) == (f"{file}:17",)


def test_a_variable_is_told_with_the_call_that_gives_it(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    executed = {f"{file}:{line}" for line in (8, 12, 21)}
    assert Givers(executed, {"x"}).of(f"{file}:8", ()) == (f"{file}:21", f"{file}:3")


def test_what_was_not_executed_decides_only_if_it_writes_the_spec(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    givers = Givers(set[str](), {"x"})
    assert givers.of(f"{file}:8", ("P('x', 'y')",)) == (f"{file}:21", f"{file}:3")
    assert givers.of(f"{file}:8", ("P('y')",)) == ()
    assert givers.of(f"{file}:8", ("P()",)) == ()


def test_a_sharding_for_a_variable_is_told_from_one_in_place(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    assert is_assigned(f"{file}:8")
    assert not is_assigned(f"{file}:17")
    assert not is_assigned(str(tmp_path / "missing.py:1"))
