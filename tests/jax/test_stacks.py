"""Adaptors of Keras, Flax NNX and plain functions, planned in a child."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
HERE = Path(__file__)


def keras_model(batch: int = 8, width: int = 16) -> Any:
    """A classifier."""
    keras: Any = import_module("keras")
    jax: Any = import_module("jax")
    inputs = keras.Input((width,))
    hidden = keras.layers.Dense(width, activation="gelu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(10)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    shape = jax.ShapeDtypeStruct
    return model, shape((batch, width), "float32"), shape((batch,), "int32")


def nnx_arguments(batch: int = 8, width: int = 16) -> Any:
    """A layer, its optimizer, and a batch."""
    nnx: Any = import_module("flax.nnx")
    jnp: Any = import_module("jax.numpy")
    optax: Any = import_module("optax")
    model = nnx.Linear(width, width, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return model, optimizer, jnp.zeros((batch, width))


def nnx_step(model: Any, optimizer: Any, x: Any) -> Any:
    """A step that changes both."""
    nnx: Any = import_module("flax.nnx")
    loss, gradients = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


def plain_arguments(batch: int = 8, width: int = 16) -> Any:
    """Arrays, of which only the shapes are made."""
    jnp: Any = import_module("jax.numpy")
    return jnp.zeros((batch, width)), jnp.zeros((width, width))


def plain_step(x: Any, weights: Any) -> Any:
    return (x @ weights).sum()


def _plan(stack: str, **settings: Any) -> Any:
    return plan_in_child(
        Job(factory=f"hlomem.stacks.{stack}:train_step", target="cpu", settings=settings)
    )


@pytest.mark.parametrize(
    ("stack", "package", "settings"),
    [
        ("keras", "keras", {"model": f"{HERE}:keras_model"}),
        ("nnx", "flax", {"step": f"{HERE}:nnx_step", "arguments": f"{HERE}:nnx_arguments"}),
        ("jit", "jax", {"step": f"{HERE}:plain_step", "arguments": f"{HERE}:plain_arguments"}),
    ],
)
def test_a_step_is_planned_with_the_settings_of_its_maker(
    stack: str, package: str, settings: dict[str, str]
) -> None:
    if find_spec(package) is None:  # Keras is not imported here: it chooses its backend once
        pytest.skip(f"{package} is not installed")
    small, large = (_plan(stack, batch=batch, **settings) for batch in (8, 4096))
    grown = large.memory.needs - small.memory.needs
    assert grown > 0.9 * 4088 * 16 * 4  # one array of the batch at least


def one_array() -> Any:
    return plain_arguments()[0]


def test_a_maker_that_returns_something_else_is_said() -> None:
    with pytest.raises(CommandError, match="a function that returns a tuple"):
        _plan("jit", step=f"{HERE}:plain_step", arguments=f"{HERE}:one_array")
