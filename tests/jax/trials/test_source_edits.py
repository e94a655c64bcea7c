"""Edits of source: the function that a stack frame names, in the framework of its class."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hlomem.base.errors import CommandError
from hlomem.jax.trials.source_edits import Edit, SourceFile, apply, draw_diff
from hlomem.report.data.sharding.finding import Place

TEXT = '''"""A model."""

import flax.linen as nn
import equinox as eqx
from flax import nnx
import jax
from functools import partial


class Base(nn.Module):
    pass


class Block(Base):
    @nn.compact
    def __call__(self, x):
        return x


class Layer(nnx.Module):
    def __call__(self, x):
        return x


class Residual(eqx.Module):
    def __call__(self, x):
        return x


def make(layers=2):
    def block(x, w, train: bool = True):
        return x @ w  # ä

    def loss(ws, x):
        x, _ = jax.lax.scan(lambda h, w: (block(h, w), None), x, ws)
        return x

    @partial(jax.jit, donate_argnums=())
    def step(ws, x):
        return jax.grad(loss)(ws, x)

    @jax.jit
    def other(ws, x):
        return ws

    third = jax.jit(loss)
    return step
'''


@pytest.fixture
def file(tmp_path: Path) -> SourceFile:
    path = tmp_path / "model.py"
    path.write_text(TEXT)
    return SourceFile(str(path))


def _line(words: str) -> int:
    return next(n for n, line in enumerate(TEXT.splitlines(), 1) if words in line)


def _new(file: SourceFile, *edits: Edit | None) -> str:
    texts = apply(edit for edit in edits if edit is not None)
    assert texts is not None
    return texts[file.file]


def test_the_framework_is_that_of_the_class_and_its_bases(file: SourceFile) -> None:
    lines = [n for n, line in enumerate(TEXT.splitlines(), 1) if line == "        return x"]
    names = ["Block.__call__", "Layer.__call__", "Residual.__call__", "make.<locals>.loss"]
    found = [file.framework(name, line) for name, line in zip(names, lines, strict=True)]
    assert found == ["linen", "nnx", "equinox", "jax"]


def test_a_decorator_goes_above_those_that_are_there(file: SourceFile) -> None:
    node = file.function("Block.__call__", _line("def __call__"))
    assert node is not None
    new = _new(file, file.decorate(node, "nn.remat"))
    assert "    @nn.remat\n    @nn.compact\n    def __call__(self, x):" in new


def test_a_lambda_is_wrapped_where_it_stands(file: SourceFile) -> None:
    line = _line("lambda h, w")
    node = file.function("make.<locals>.loss.<locals>.<lambda>", line)
    assert node is not None
    new = _new(file, file.decorate(node, "jax.checkpoint"))
    assert "jax.lax.scan(jax.checkpoint(lambda h, w: (block(h, w), None)), x, ws)" in new


def test_a_scan_calls_another_function_and_gets_another_body(file: SourceFile) -> None:
    [call] = file.scans_at("make.<locals>.loss", _line("lambda h, w"))
    assert "scan_in_chunks(lambda h, w" in _new(file, file.call_another(call, "scan_in_chunks"))
    assert "scan(off(lambda h, w: (block(h, w), None)), x" in _new(
        file, file.wrap_function(call, "off")
    )


def test_arguments_are_donated_where_the_function_is_jitted(file: SourceFile) -> None:
    assert "@partial(jax.jit, donate_argnums=(0,))" in _new(
        file, file.donate("make.<locals>.step", ["ws"])
    )
    assert '@jax.jit(donate_argnames=("ws",))\n    def other' in _new(
        file, file.donate("make.<locals>.other", ["ws"])
    )
    new = _new(file, file.donate("make.<locals>.loss", ["ws", "x"]))
    assert 'third = jax.jit(loss, donate_argnames=("ws", "x"))' in new
    assert file.donate("make.<locals>.block", ["x"]) is None


def test_a_module_is_called_what_the_file_calls_it(file: SourceFile) -> None:
    assert file.name_of("flax.linen") == ("nn", [])
    assert file.name_of("functools.partial") == ("partial", [])
    name, [edit] = file.name_of("jax.ad_checkpoint")[0], [*file.name_of("optax")[1]]
    assert name == "jax.ad_checkpoint"
    assert "from functools import partial\nimport optax\n" in _new(file, edit)


def test_arguments_have_positions(file: SourceFile) -> None:
    node = file.function("make.<locals>.block", _line("x @ w"))
    assert node is not None
    assert file.positions(node, ["train", "no such"]) == [2]


def test_edits_in_each_others_way_are_refused(file: SourceFile) -> None:
    [call] = file.scans_at("make.<locals>.loss", _line("lambda h, w"))
    node = file.function("make.<locals>.loss.<locals>.<lambda>", _line("lambda h, w"))
    assert node is not None
    both = [file.decorate(node, "jax.checkpoint"), file.wrap_function(call, "off")]
    assert apply(edit for edit in both if edit is not None) is None


def test_a_diff_is_what_patch_applies(
    file: SourceFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = file.function("make.<locals>.block", _line("x @ w"))
    assert node is not None
    texts = apply([file.decorate(node, "jax.checkpoint"), *file.name_of("optax")[1]])
    assert texts is not None
    monkeypatch.chdir(tmp_path)
    diff = draw_diff(texts)
    subprocess.run(
        ["/usr/bin/env", "patch", "-p1"], input=diff, text=True, check=True, cwd=tmp_path
    )
    assert (tmp_path / "model.py").read_text() == texts[file.file]


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.py").write_text("def (")
    with pytest.raises(CommandError, match="cannot be read as Python"):
        SourceFile(str(tmp_path / "no.py"))


CONSTRAINED = """import jax
from jax.lax import with_sharding_constraint


def f(a, s, t):
    with_sharding_constraint(a, s)
    b = with_sharding_constraint(a + 1, t)
    return b


jitted = jax.jit(
    f,
    out_shardings=None,
)
"""


@pytest.fixture
def constrained(tmp_path: Path) -> SourceFile:
    (tmp_path / "constrained.py").write_text(CONSTRAINED)
    return SourceFile(str(tmp_path / "constrained.py"))


def _applied(edits: list[Edit]) -> str:
    [text] = (apply(edits) or {}).values()
    return text


def test_a_value_takes_other_shardings_before_its_constraint(constrained: SourceFile) -> None:
    place = Place(file="", line=7, column=8, end_line=7, end_column=42, is_constraint=True)
    edit = constrained.constrain_before(place, ["x", "y"])
    assert edit is not None
    inner = "jax.lax.with_sharding_constraint(a + 1, x)"
    outer = f"with_sharding_constraint(jax.lax.with_sharding_constraint({inner}, y), t)"
    assert f"    b = {outer}\n" in _applied([edit])
    assert constrained.constrain_before(Place(file="", line=8, column=11), ["x"]) is None


def test_a_constraint_is_left_out(constrained: SourceFile) -> None:
    place = Place(file="", line=7, column=8, end_line=7, end_column=42, is_constraint=True)
    assert "    b = (a + 1)\n" in _new(constrained, constrained.leave_out(place))
    assert constrained.leave_out(Place(file="", line=8, column=11, is_constraint=True)) is None


def test_a_constraint_that_is_mapped_over_a_tree_is_on_the_tree(tmp_path: Path) -> None:
    (tmp_path / "mapped.py").write_text("y = jax.tree.map(with_sharding_constraint, tree, to)\n")
    file = SourceFile(str(tmp_path / "mapped.py"))
    place = Place(file="", line=1, column=4, is_constraint=True)
    assert _new(file, file.leave_out(place)) == "y = tree\n"
    assert "with_sharding_constraint(tree, s)" in _new(file, file.constrain(place, "s"))


def test_a_function_that_is_given_by_name_is_wrapped(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text("jax.lax.scan(f=body, init=x, xs=ws)\nscan(*all)\n")
    file = SourceFile(str(tmp_path / "named.py"))
    first, second = file.calls(["scan"])
    new = _new(file, file.wrap_function(first, "jax.checkpoint", ["policy=p"]))
    assert "scan(f=jax.checkpoint(body, policy=p), init=x" in new
    assert file.wrap_function(second, "jax.checkpoint") is None


def test_the_line_of_a_keyword(constrained: SourceFile) -> None:
    assert constrained.keyword_line(11, "out_shardings") == 13
    assert constrained.keyword_line(11, "in_shardings") == 11
    assert constrained.keyword_line(11, "out_shardings", 0) == 13
