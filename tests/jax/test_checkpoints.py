"""`jax.checkpoint` around parts of a program: nothing else changes, and the others are counted."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax.compile.scheduled_module import Checkpoints, has_parameter

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = pytest.importorskip("jax.numpy")
NAMES = ("grad", "value_and_grad", "vjp")


@pytest.fixture(autouse=True)
def _own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX has its own functions again after a test."""
    for name in NAMES:
        monkeypatch.setattr(jax, name, getattr(jax, name))
    monkeypatch.setattr(jax.lax, "scan", jax.lax.scan)


def _loss(weights: Any, x: Any, times: int, *, name: str = "tanh") -> Any:
    """Uses a number and a text that may become no arrays."""
    for _ in range(times):
        x, _ = jax.lax.scan(lambda h, w: (getattr(jnp, name)(h @ w), None), x, weights)
    return (x**2).sum()


def _arguments() -> tuple[Any, Any]:
    numbers = jnp.linspace(-1.0, 1.0, 3 * 4 * 4).reshape(3, 4, 4)
    return numbers, numbers[0]


def _gradient(weights: Any, x: Any) -> Any:
    return jax.grad(_loss)(weights, x, 2, name="tanh")


def test_gradients_stay_the_same_and_are_recomputed() -> None:
    expected = _gradient(*_arguments())
    checkpoints = Checkpoints("nothing_saveable", "gradient")
    checkpoints.install()
    assert (_gradient(*_arguments()) == expected).all()
    assert "remat" in str(jax.make_jaxpr(_gradient)(*_arguments()))
    assert (checkpoints.places.wrapped, checkpoints.places.gradients) == ("gradient", 2)
    assert checkpoints.places.scans >= 4


def test_bodies_of_scans_are_recomputed_and_compute_the_same() -> None:
    expected = _gradient(*_arguments())
    checkpoints = Checkpoints("nothing_saveable", "scan")
    checkpoints.install()
    assert (_gradient(*_arguments()) == expected).all()
    assert "remat" in str(jax.make_jaxpr(_gradient)(*_arguments()))
    assert checkpoints.places.wrapped == "scan"


def test_a_pair_of_value_and_pullback_is_wrapped_too() -> None:
    weights, x = _arguments()
    value, pullback = jax.vjp(lambda w: _loss(w, x, 1), weights)
    Checkpoints("dots_saveable", "gradient").install()
    again, repeated = jax.vjp(lambda w: _loss(w, x, 1), weights)
    assert value == again
    assert (pullback(value)[0] == repeated(value)[0]).all()


def test_a_factory_that_wraps_something_itself_gets_the_function_to_do_it() -> None:
    def own(width: int = 4, checkpoint: Any = lambda function: function) -> None:
        """Wraps its layers."""

    def folder(checkpoint: str = "/tmp/weights") -> None:  # noqa: S108 - a name, not a file
        """Means something else by it."""

    def required(checkpoint: Any) -> None:
        """Does not say what it means."""

    assert has_parameter(own)
    assert not has_parameter(folder)
    assert not has_parameter(required)
    checkpoints = Checkpoints("nothing_saveable", "gradient")
    settings = checkpoints.settings_of(own)
    assert checkpoints.places.wrapped == "checkpoint"
    wrapped = settings["checkpoint"](jnp.sin)
    assert "remat" in str(jax.make_jaxpr(jax.grad(wrapped))(1.0))
    assert Checkpoints("nothing_saveable", "gradient").settings_of(folder) == {}
