"""The training step of a compiled Keras model, as `Model.fit` runs it on JAX.

    hlomem fit hlomem.stacks.keras:train_step --target tpu-v6e:4 --set model=train.py:make_model \\
        --max batch

`make_model` returns a model that was compiled and built, with one batch of its data: `(model, x,
y)`, arrays or anything with a shape and a dtype. It is called with all other settings.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory
from hlomem.stacks.lowering import import_stack

_INSTALL = "pip install keras"


def train_step(model: str, **settings: Any) -> Any:
    """The factory: Keras' own step, its variables donated as `Model.fit` does."""
    preload()
    made = find_factory(model)(**settings)
    if not isinstance(made, tuple) or len(made) != 3:
        raise CommandError("`model` names a function that returns (model, x, y)")
    network, x, y = made
    if not getattr(network, "built", False) or getattr(network, "optimizer", None) is None:
        raise CommandError("the model is to be compiled with an optimizer, and built")
    network.optimizer.build(network.trainable_variables)
    _build_metrics(network, x, y)
    jax = import_module("jax")
    state = (
        network.trainable_variables,
        network.non_trainable_variables,
        network.optimizer.variables,
        network.metrics_variables,
    )
    shapes = jax.tree.map(_shape_of, tuple(map(list, state)))
    data = jax.tree.map(_shape_of, (x, y))

    def step(state: Any, data: Any) -> Any:
        return network.train_step(state, data)

    return jax.jit(step, donate_argnums=0), (shapes, data)


def preload() -> None:
    """Import Keras with its JAX backend."""
    os.environ["KERAS_BACKEND"] = "jax"
    import_stack("keras", "Keras", _INSTALL)


def _build_metrics(network: Any, x: Any, y: Any) -> None:
    """Let Keras make the variables of its metrics, by shapes alone."""
    jax = import_module("jax")
    shapes = jax.tree.map(_shape_of, (x, y))
    network._symbolic_build(data_batch=shapes)


def _shape_of(array: Any) -> Any:
    jax = import_module("jax")
    return jax.ShapeDtypeStruct(tuple(array.shape), str(getattr(array.dtype, "name", array.dtype)))
