"""Arguments become shapes on the devices of a target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.jax.compile.programs import place, result_names
from hlomem.jax.target_kinds import parse_target

jax: Any = pytest.importorskip("jax", reason="jax is not installed")


def test_arrays_become_shapes_and_numbers_stay() -> None:
    target = parse_target("cpu")
    array = jax.numpy.ones((2, 3))
    (placed, number), keywords = place((array, 7), {"y": array}, target)
    assert (placed.shape, placed.dtype, number) == ((2, 3), "float32", 7)
    assert placed.sharding.device_set == {target.devices[0]}
    assert keywords["y"].shape == (2, 3)


def test_an_argument_on_other_devices_is_refused_with_the_way_out() -> None:
    sharding = SimpleNamespace(device_set={"one", "two"})
    leaf = SimpleNamespace(shape=(4,), dtype="float32", sharding=sharding)
    with pytest.raises(CommandError, match=r"make its mesh of hlomem\.jax\.devices\('cpu'\)"):
        place((leaf,), {}, parse_target("cpu"))


def test_results_are_named_by_their_paths() -> None:
    lowered = jax.jit(lambda x: {"a": x, "b": [x, x + 1]}).lower(jax.numpy.ones(3))
    assert result_names(lowered) == ("['a']", "['b'][0]", "['b'][1]")
    assert result_names(object()) == ()
