"""The arguments of calls and the fields that decide a sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.jax.trials.givers import Givers

if TYPE_CHECKING:
    from pathlib import Path

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


def test_who_gives_a_line_its_axes_is_found_through_constructors(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    executed = {f"{file}:{line}" for line in (8, 12, 13, 17)}
    assert Givers(executed, {"x", "y"}).of(f"{file}:8") == (f"{file}:17",)
    assert Givers(executed, {"x", "y"}).of(f"{file}:13") == (f"{file}:17",)


def test_a_variable_is_told_with_the_call_that_gives_it(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    executed = {f"{file}:{line}" for line in (8, 12, 21)}
    assert Givers(executed, {"x"}).of(f"{file}:8") == (f"{file}:21", f"{file}:3")


def test_what_was_not_executed_decides_nothing(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    assert Givers(set[str](), {"x"}).of(f"{file}:8") == ()
    assert Givers(set[str](), {"x"}).of(str(tmp_path / "missing.py:1")) == ()
