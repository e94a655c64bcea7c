"""`hlomem.jax.fits`: a verdict that is true or false, and a line."""

from __future__ import annotations

from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax import verdicts
from hlomem.jax.verdicts import FitsVerdict, limit_on
from tests.jax import factories

GIB = 1 << 30


def test_a_verdict_is_a_truth_value_and_a_line() -> None:
    good = FitsVerdict(target="tpu-v4:2x2x1", needs=30 * GIB, capacity=31 * GIB)
    bad = FitsVerdict(target="tpu-v4:2x2x1", needs=42 * GIB, capacity=31 * GIB)
    assert good
    assert not bad
    assert str(good) == "fits: tpu-v4:2x2x1 needs 30.00 GiB of 31.00 GiB"
    assert str(bad) == "does not fit: tpu-v4:2x2x1 needs 42.00 GiB of 31.00 GiB, 11.00 GiB too much"


def test_the_limit_of_a_target_is_what_its_device_has() -> None:
    assert limit_on("tpu-v4") == int(30.75 * GIB)
    assert limit_on("tpu-7x:2x2x1") == int(94.74 * GIB)
    assert limit_on("cpu") is None


def test_wrong_uses_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "memory", None)
    with pytest.raises(CommandError, match="a factory takes settings"):
        hlomem.jax.fits("m:f", "tpu-v4", 1)
    with pytest.raises(CommandError, match="settings are those of a factory"):
        hlomem.jax.fits(len, "tpu-v4", settings={"batch": 1})
    with pytest.raises(CommandError, match="give a capacity"):
        hlomem.jax.fits(len, "cpu")


def test_a_factory_and_its_function_have_the_same_verdict() -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    function, arguments = factories.step([None], batch=64)
    options: dict[str, Any] = {"capacity": "1 MiB"}
    by_name = hlomem.jax.fits("tests.jax.factories:step", "cpu", settings={"batch": 64}, **options)
    assert by_name == hlomem.jax.fits(function, "cpu", *arguments, **options)
    assert by_name
    assert not hlomem.jax.fits(function, "cpu", *arguments, capacity=1000)
