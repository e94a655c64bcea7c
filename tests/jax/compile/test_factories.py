"""Factories: how they are found, called, and what they may return."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.flops import count_flops
from hlomem.jax.target_kinds import parse_target

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")

HERE = "tests.jax.factories"


def _make(factory: str, **settings: Any) -> Any:
    return make_program(find_factory(f"{HERE}:{factory}"), settings, parse_target("cpu"))


def test_a_factory_is_found_by_module_or_by_file(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    request.addfinalizer(lambda: sys.modules.pop("factories", None))
    file = Path(__file__).parents[1] / "factories.py"
    assert find_factory(f"{HERE}:step").__name__ == "step"
    assert find_factory(f"{file}:step").__name__ == "step"


def test_functions_with_keywords_and_programs_are_lowered() -> None:
    for factory in ("step", "keyworded", "lowered"):
        assert isinstance(_make(factory).lowered, jax.stages.Lowered)
    function, arguments = find_factory(f"{HERE}:step")([None])
    traced = make_program(lambda: function.trace(*arguments), {}, parse_target("cpu"))
    assert traced.jaxpr is not None
    assert isinstance(traced.lowered, jax.stages.Lowered)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("train", "names no factory: give module:function"),
        (":step", "names no factory"),
        ("no_such_module_here:step", "no module `no_such_module_here` here or on PYTHONPATH"),
        ("nowhere/train.py:step", "nowhere/train.py: no such file"),
        (f"{HERE}:nobody", "has no `nobody`; its functions are import_module, step"),
        (f"{HERE}:NO_FUNCTION", "is not a function, but a int"),
    ],
)
def test_what_names_no_factory_is_refused(spec: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        find_factory(spec)
    assert said in str(caught.value)


def test_what_a_factory_must_not_return_is_said() -> None:
    with pytest.raises(CommandError, match=r"a `NoneType` instead of \(function, arguments\)"):
        _make("returns_nothing")
    with pytest.raises(CommandError, match="they are a `int` and a `dict`"):
        make_program(lambda: (len, 3), {}, parse_target("cpu"))


def test_a_setting_the_factory_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(CommandError, match="no setting `bach`; its settings are batch, width"):
        _make("step", bach=4)
    assert _make("step", batch=4).lowered is not None


def test_products_in_loops_count_as_often_as_they_run() -> None:
    def rows(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, _: (h @ w, None), x, None, length=5)[0]

    def kernel(x: Any, k: Any) -> Any:
        return jax.lax.conv(x, k, (1, 1), "SAME")

    x, w = jnp.ones((3, 8)), jnp.ones((8, 8))
    assert count_flops(jax.make_jaxpr(rows)(x, w)) == (5 * 2 * 3 * 8 * 8, False)
    image, filters = jnp.ones((2, 4, 16, 16)), jnp.ones((6, 4, 3, 3))
    products = 2 * (2 * 6 * 16 * 16) * (4 * 3 * 3)
    assert count_flops(jax.make_jaxpr(kernel)(image, filters)).total == products
    endless = jax.make_jaxpr(lambda x: jax.lax.while_loop(lambda _: True, lambda x: x @ x, x))(w)
    assert count_flops(endless) == (2 * 8 * 8 * 8, True)
